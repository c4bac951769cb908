//! The dependency arrows of the design: who may know whom, read from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

const OURS: [&str; 7] = [
    "queen",
    "queen-log",
    "queen-engine",
    "queen-raft",
    "queen-kafka",
    "queen-http",
    "compat-tests",
];

fn metadata() -> Metadata {
    // Asked at run time: a target folder may be shared by several checkouts.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
    MetadataCommand::new()
        .manifest_path(format!("{here}/../Cargo.toml"))
        .other_options(vec!["--locked".into()])
        .exec()
        .expect("cargo metadata")
}

/// Direct dependencies of a crate on crates of ours, of any kind but `dev`.
fn direct(metadata: &Metadata, name: &str) -> BTreeSet<String> {
    let package = metadata
        .workspace_packages()
        .into_iter()
        .find(|package| package.name.as_str() == name)
        .unwrap_or_else(|| panic!("no crate {name} in the workspace"));
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .map(|dependency| dependency.name.clone())
        .filter(|dependency| OURS.contains(&dependency.as_str()))
        .collect()
}

/// Everything a crate is built with: its normal dependencies and theirs.
fn transitive(metadata: &Metadata, name: &str) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().expect("a resolved graph");
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let start = metadata
        .workspace_packages()
        .into_iter()
        .find(|package| package.name.as_str() == name)
        .unwrap_or_else(|| panic!("no crate {name} in the workspace"));
    let mut seen = BTreeSet::new();
    let mut todo = vec![&start.id];
    while let Some(id) = todo.pop() {
        for dependency in &nodes[id].deps {
            let normal = dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal);
            if normal && seen.insert(&dependency.pkg) {
                todo.push(&dependency.pkg);
            }
        }
    }
    seen.into_iter()
        .map(|id| metadata[id].name.to_string())
        .collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| name.to_string()).collect()
}

#[test]
fn the_workspace_holds_these_crates() {
    let found: BTreeSet<String> = metadata()
        .workspace_packages()
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    assert_eq!(found, names(&OURS));
}

#[test]
fn arrows_only_point_down() {
    let metadata = metadata();
    let allowed: [(&str, &[&str]); 7] = [
        (
            "queen",
            &[
                "queen-engine",
                "queen-http",
                "queen-kafka",
                "queen-log",
                "queen-raft",
            ],
        ),
        ("queen-kafka", &["queen-engine"]),
        ("queen-http", &["queen-engine"]),
        ("queen-raft", &["queen-engine", "queen-log"]),
        ("queen-engine", &[]),
        ("queen-log", &[]),
        ("compat-tests", &[]),
    ];
    for (name, expected) in allowed {
        assert_eq!(direct(&metadata, name), names(expected), "{name}");
    }
}

#[test]
fn the_engine_is_pure() {
    let found = transitive(&metadata(), "queen-engine");
    for outside in ["tokio", "openraft", "hyper", "queen-log", "queen-raft"] {
        assert!(
            !found.contains(outside),
            "queen-engine is built with {outside}"
        );
    }
}

#[test]
fn the_log_knows_no_protocol_and_no_runtime() {
    let found = transitive(&metadata(), "queen-log");
    for outside in [
        "tokio",
        "openraft",
        "hyper",
        "kafka-protocol",
        "queen-engine",
    ] {
        assert!(
            !found.contains(outside),
            "queen-log is built with {outside}"
        );
    }
}
