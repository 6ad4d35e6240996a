//! The composition root: worker threads, the write pipeline, datasets and their streams.
//!
//! ```text
//! write:  source thread ─► WritePipeline (encoders, committer) ─► published cache
//! read:   Dataset ─ claim ─► Stream ─ blocks from the WorkerPool ─► consumer
//!            └─ ActiveTable ─► Plan (order) ─► Snapshot, kept by every Stream
//! ```
//! Whatever a user relies on can be tested here without Python.

mod active;
mod ahead;
mod apart;
mod batch;
mod batches;
mod block;
mod canonical;
mod cycles;
mod dataset;
mod derived;
mod face;
pub mod fork_gate;
mod handover;
mod lineage;
mod lookahead;
mod orders_before_fork;
mod payload_run;
mod pieces;
mod plan;
mod pool;
mod profile;
mod progress;
mod projection;
mod queue;
mod receipts;
pub mod resources;
mod reuse;
mod saved;
mod saved_document;
mod saved_files;
mod saved_with_table;
mod single;
mod snapshot;
mod state;
mod stream;
mod tables;
mod turn;
mod windows;
mod write_pipeline;

pub use active::{ActiveTable, SampleRef};
pub use apart::{Check, run_apart};
pub use batches::Batches;
pub use block::{Block, Fetch};
pub use dataset::{Dataset, ReadOptions, refuse_damaged};
pub use face::Face;
pub use handover::{Handover, Received, write_table};
pub use lookahead::{check_process, panic_error};
pub use orders_before_fork::prepare_orders;
pub use payload_run::PayloadRun;
pub use pieces::Pieces;
pub use pool::WorkerPool;
pub use profile::{Profile, Stage, StageSeconds};
pub use progress::Progress;
pub use projection::{Projection, check_names};
pub use queue::QueueBound;
pub use reuse::{Decision, OnStale, SourceClaim, decide};
pub use saved_document::Form;
pub use saved_files::{LoadedFiles, LoadedTable, SavedTable, load_files, save_files};
pub use single::SampleAtHand;
pub use snapshot::Snapshot;
pub use state::share_cursors;
pub use stream::{ReadAhead, Stream};
pub use write_pipeline::WritePipeline;

pub use dataset_rt_sampler::{Batching, POSITION_LIMIT, Partition, Window};
