//! From files to a state: the newest image whose sidecars are all there, or nothing at all when the
//! log still begins with its first entry. Entries behind the image are replayed by consensus.

use bytes::Bytes;
use queen_log::Log;

use super::{ImagePlace, SIDECAR, image};
use crate::apply::State;
use crate::error::StartError;

/// What a boot starts from.
#[derive(Default)]
pub struct Booted {
    pub state: State,
    /// What the image stands for that it was loaded from.
    pub image: Option<ImagePlace>,
}

/// Loads the newest usable state.
pub fn load(log: &Log) -> Result<Booted, StartError> {
    let images = log
        .images()
        .map_err(|error| StartError::Log(error.to_string()))?;
    let mut unusable = Vec::new();
    for image in images {
        match load_image(log, &image.bytes) {
            Ok(state) => {
                reaches(log, &state)?;
                tracing::info!(index = image.index, "state image loaded");
                return Ok(Booted {
                    image: ImagePlace::of(&state),
                    state,
                });
            }
            Err(why) => {
                tracing::warn!(index = image.index, why, "state image not used");
                unusable.push(format!("image {}: {why}", image.index));
            }
        }
    }
    // openraft's first entry has index 0, or 1 in a log that was begun by another implementation.
    if log.first_index() <= 1 {
        return Ok(Booted::default());
    }
    let why = match unusable.is_empty() {
        true => "there is no image in its images directory".to_string(),
        false => unusable.join("; "),
    };
    let first = log.first_index();
    Err(StartError::State(format!(
        "the log begins at entry {first}, and no image says what came before ({why})"
    )))
}

/// Refuses a log that ends before its own state image: entries that were applied, and answered, are
/// gone. Going on would let consensus drop what is left of the log.
fn reaches(log: &Log, state: &State) -> Result<(), StartError> {
    let Some(applied) = state.applied else {
        return Ok(());
    };
    let last = log.last().map(|(_, index)| index);
    if last.is_some_and(|last| last >= applied.index) {
        return Ok(());
    }
    let newest = log
        .segments()
        .last()
        .map(|segment| segment.path.display().to_string());
    Err(StartError::State(format!(
        "the log ends at entry {}, but the state image proves that entries up to {} were applied: \
         the newest segment ({}) is damaged or files are missing; put them back, the other \
         segments are as they were",
        last.map_or("none".to_string(), |last| last.to_string()),
        applied.index,
        newest.unwrap_or_else(|| "none is there".to_string()),
    )))
}

fn load_image(log: &Log, bytes: &Bytes) -> Result<State, String> {
    let mut state = image::decode(bytes.clone()).map_err(|error| error.to_string())?;
    for segment in log.segments() {
        let Some(last) = segment
            .last_index
            .filter(|last| *last < state.sealed_before)
        else {
            continue;
        };
        let mapped = log
            .map_sidecar(segment.no, SIDECAR)
            .map_err(|error| error.to_string())?;
        let path = segment.path.with_extension(SIDECAR);
        let Some(mapped) = mapped else {
            return Err(format!(
                "it needs {} (entries up to {last})",
                path.display()
            ));
        };
        state
            .index
            .load_sealed(mapped)
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(state)
}
