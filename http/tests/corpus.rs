//! The fuzz target `http_push` over its seeds and their neighbours.

#[path = "../../fuzz/mutate.rs"]
mod mutate;

#[test]
fn push_bodies_and_their_neighbours() {
    mutate::run("http_push", &[], |body| {
        let _ = queen_http::parse_push_body(body);
    });
}
