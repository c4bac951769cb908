//! Kafka request frames behind the length prefix.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    queen_kafka::fuzz_frame(data);
});
