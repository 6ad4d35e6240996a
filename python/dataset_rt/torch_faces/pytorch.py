"""Imports the modules here that need PyTorch, when one is asked for and not before."""

from __future__ import annotations

import importlib
from types import ModuleType


def torch_face(name: str, asked_for: str) -> ModuleType:
    """Return module `name` of this package.

    Raises:
        ImportError: PyTorch cannot be imported.
    """
    try:
        importlib.import_module("torch.utils.data")
    except ImportError as error:
        raise ImportError(
            f"{asked_for} needs PyTorch, which cannot be imported ({error}): pip install torch"
        ) from error
    return importlib.import_module(f"dataset_rt.torch_faces.{name}")
