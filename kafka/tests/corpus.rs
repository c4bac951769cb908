//! The fuzz target `kafka_frame` over its seeds (frames of real clients) and their neighbours.

#[path = "../../fuzz/mutate.rs"]
mod mutate;

/// As in the binary: a lying array length must become an error, not an abort.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[test]
fn frames_of_real_clients_and_their_neighbours() {
    mutate::run("kafka_frame", &[], |frame| {
        queen_kafka::fuzz_frame(frame);
    });
}
