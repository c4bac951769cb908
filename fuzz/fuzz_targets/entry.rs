//! Log entries and state images, as a damaged disk could hand them to apply.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use queen_engine::entry::Entry;
use queen_engine::index::{RecordIndex, SealedPart};
use queen_engine::{Effects, Engine};

fuzz_target!(|data: &[u8]| {
    let _ = Engine::from_image(data);
    let _ = SealedPart::open(Bytes::copy_from_slice(data));
    if let Ok(entry) = Entry::decode(Bytes::copy_from_slice(data)) {
        let (mut engine, mut index) = (Engine::new(), RecordIndex::new());
        engine.apply(1, 1, &entry, &mut index, &mut Effects::default());
    }
});
