//! Python bindings: converts, calls, converts.
