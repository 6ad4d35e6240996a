//! The saved state of a stream: readable JSON, a few hundred bytes whatever the table. Says where
//! the consumer is, never what was read ahead. Rules S34 to S37 of `docs/sampling.md`.

use dataset_rt_sampler::{Cursor, Mode, SAMPLER_VERSION};
use dataset_rt_storage::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dataset::Dataset;
use crate::saved_document::parsed;
use crate::snapshot::Snapshot;
use crate::windows::cursor_error;

const FORMAT: &str = "dataset_rt.state";
const VERSION: u32 = 1;

/// Everything the rest of the stream depends on, contents and table by their digest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedState {
    format: String,
    version: u32,
    sampler_version: u32,
    sampling: String,
    seed: u64,
    table_digest: String,
    rows: u64,
    epoch: u64,
    epoch_len: u64,
    epoch_len_was_set: bool,
    /// First position of the epoch.
    window_start: u64,
    /// Next position to be read.
    position: u64,
}

impl Dataset {
    /// Where the newest iterator of this process stands, or the next one would begin, as JSON. All
    /// ranks give the same at the end of a global step.
    ///
    /// # Errors
    /// `InvalidInput` inside a global step, or what `attend` returned.
    pub fn save_state(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<String> {
        let (snapshot, cursor, newest) = {
            let state = self.look()?;
            (state.snapshot.clone(), state.cursor, state.newest.clone())
        };
        let newest = newest.filter(|progress| progress.is_of_this_process());
        let mut position = cursor.peek().begin();
        let mut window = cursor.peek();
        if let Some(progress) = newest {
            let found = progress.position().ok_or_else(|| self.inside_a_step(progress.taken()))?;
            // A window read to its end is followed by the next, where the cursor is already.
            if found < progress.window().end() {
                (window, position) = (*progress.window(), found);
            }
        }
        let state = SavedState {
            format: FORMAT.to_owned(),
            version: VERSION,
            sampler_version: SAMPLER_VERSION,
            sampling: self.options().mode.as_str().to_owned(),
            seed: self.options().seed,
            table_digest: snapshot.prepare(attend)?.digest().to_string(),
            rows: snapshot.table().rows(),
            epoch: window.epoch,
            epoch_len: window.len,
            epoch_len_was_set: cursor.len_was_set,
            window_start: window.start,
            position,
        };
        serde_json::to_string(&state)
            .map_err(|e| Error::internal(format!("a state cannot be written as JSON: {e}")))
    }

    fn inside_a_step(&self, taken: u64) -> Error {
        let rank = self.rank();
        if rank.step() <= rank.rank() {
            return Error::invalid(format!(
                "rank {} of {} has no part in global batches of {} samples, so its iterator cannot \
                 tell where the others are before it has ended; read with iter_batches, or save the \
                 state on another rank",
                rank.rank(),
                rank.world_size(),
                rank.step()
            ));
        }
        Error::invalid(format!(
            "the newest iterator of rank {} of {} took {taken} samples and stands inside a global \
             batch of {} samples; save the state at the end of one, when all ranks are there",
            rank.rank(),
            rank.world_size(),
            rank.step()
        ))
    }

    /// Makes the next iterator begin where a saved state says. On error nothing changes.
    ///
    /// # Errors
    /// `InvalidInput` for what is no state, or the state of another table, seed, sampling mode or
    /// sampler, naming both; or what `attend` returned.
    pub fn load_state(&self, text: &str, attend: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let snapshot = self.snapshot()?;
        let cursor = self.cursor_of(text, &snapshot, attend)?;
        attend()?;
        self.moving(|state| {
            if !std::ptr::eq(&*state.snapshot, &*snapshot) {
                return Err(Error::conflict(
                    "the table was replaced while a state was loaded; load it once more",
                ));
            }
            state.cursor = cursor;
            state.newest = None;
            Ok(())
        })
    }

    /// The cursor of a saved state that belongs to the table of `snapshot`.
    ///
    /// # Errors
    /// As [`Dataset::load_state`].
    pub(crate) fn cursor_of(
        &self,
        text: &str,
        snapshot: &Snapshot,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Cursor> {
        let saved: SavedState = serde_json::from_str(text).map_err(|e| {
            Error::invalid(format!(
                "this is no saved state of a dataset: {e}; pass what state_dict() returned, not a \
                 checkpoint that holds it"
            ))
        })?;
        let digest = snapshot.prepare(attend)?.digest().to_string();
        self.checked(&saved, snapshot.table().rows(), &digest)
    }

    fn checked(&self, saved: &SavedState, rows: u64, digest: &str) -> Result<Cursor> {
        let options = self.options();
        let differs = |what: &str, found: &dyn ToString, expected: &dyn ToString, advice: &str| {
            let (found, expected) = (found.to_string(), expected.to_string());
            if found == expected {
                return Ok(());
            }
            Err(Error::invalid(format!(
                "the saved state has {what} {found}, this dataset {expected}; {advice}"
            )))
        };
        differs("format", &saved.format, &FORMAT, "expected a state of a dataset")?;
        let newer = "use the release that saved it";
        differs("version", &saved.version, &VERSION, newer)?;
        differs("sampler_version", &saved.sampler_version, &SAMPLER_VERSION, newer)?;
        let open = "open the dataset with the value of the saved run";
        // A word that nobody can pass as `sampling`.
        let sequential = Mode::Sequential.as_str();
        let mode = options.mode.as_str();
        let reopen = if [saved.sampling.as_str(), mode].contains(&sequential) {
            "sequential is shuffle=False: open the dataset with the value of the saved run"
        } else {
            open
        };
        differs("sampling", &saved.sampling, &mode, reopen)?;
        differs("seed", &saved.seed, &options.seed, open)?;
        let table = "apply the caches and the table of the saved run first: load_state(directory) \
                     does, when save_state saved it";
        differs("rows", &saved.rows, &rows, table)?;
        differs("table_digest", &saved.table_digest, &digest, table)?;
        let read = saved.position.checked_sub(saved.window_start).ok_or_else(|| {
            Error::invalid(format!(
                "the saved state has position {} before its window_start {}",
                saved.position, saved.window_start
            ))
        })?;
        if !saved.epoch_len_was_set {
            let what = "an epoch_len that was never set, of";
            let advice = "expected the number of rows";
            differs(what, &saved.epoch_len, &saved.rows, advice)?;
        }
        let SavedState { window_start, epoch, epoch_len, epoch_len_was_set, .. } = *saved;
        Cursor::restore(window_start, epoch, epoch_len, epoch_len_was_set, read)
            .map_err(cursor_error)
    }
}

/// Whether a state that was read from a sound file has the fields of one.
///
/// # Errors
/// `Corrupt` naming what is wrong.
pub fn check_fields(state: &Value) -> Result<()> {
    parsed::<SavedState>("state", state).map(drop)
}
