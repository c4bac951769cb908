//! Record batches as producers send them: check, decompress, walk, rewrite.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use queen_engine::batch::{DecodedBatch, check, lane_keys, without};

fuzz_target!(|data: &[u8]| {
    let _ = check(data);
    let batch = Bytes::copy_from_slice(data);
    if let Ok(decoded) = DecodedBatch::decode(batch.clone(), 1 << 20) {
        let keys = lane_keys(&decoded, 0);
        assert_eq!(keys.lane_of.len(), decoded.len());
        let _ = without(&batch, &[0], 1 << 20);
    }
});
