//! One log segment, as recovery scans it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = queen_log::recover_bytes(data);
});
