//! Bodies of POST /api/v1/push.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = queen_http::parse_push_body(data);
});
