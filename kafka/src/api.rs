//! One file per request kind: its versions and rules at the head, then from the request to a
//! command or a look, and from what came of it to the answer.

pub(crate) mod api_versions;
pub(crate) mod fetch;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod produce;
