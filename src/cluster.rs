//! `queen cluster`: speaks the HTTP routes of a running node and shows what they say as a table for
//! people.

use std::process::ExitCode;

use queen_http::client::{self, Said};
use serde_json::{Value, json};

use crate::cli::{ClusterAction, ClusterArgs};

/// Carries out one command.
pub fn run(arguments: &ClusterArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("a runtime cannot be started: {error}")),
    };
    let (method, path, body) = request(&arguments.action);
    let said = runtime.block_on(client::call(&arguments.url, method, &path, body));
    match said {
        Err(error) => fail(&error),
        Ok(Said { status: 200, body }) => {
            print!("{}", table(&body));
            match body["quorum"].as_bool() {
                Some(true) => ExitCode::SUCCESS,
                Some(false) | None => ExitCode::FAILURE,
            }
        }
        Ok(Said { status, body }) => match body["error"].as_str() {
            Some(error) => fail(error),
            None => fail(&format!("{} answers {status}: {body}", arguments.url)),
        },
    }
}

fn fail(told: &str) -> ExitCode {
    eprintln!("queen: {told}");
    ExitCode::FAILURE
}

fn request(action: &ClusterAction) -> (&'static str, String, Option<Value>) {
    match action {
        ClusterAction::Status => ("GET", "/api/v1/cluster".to_string(), None),
        ClusterAction::Add { id, address } => (
            "POST",
            "/api/v1/cluster/nodes".to_string(),
            Some(json!({"id": id, "address": address})),
        ),
        ClusterAction::Remove { id } => ("DELETE", format!("/api/v1/cluster/nodes/{id}"), None),
        ClusterAction::Transfer { to } => (
            "POST",
            "/api/v1/cluster/transfer".to_string(),
            Some(json!({"to": to})),
        ),
    }
}

/// The cluster as lines: what holds for all of it, then one row per member.
fn table(cluster: &Value) -> String {
    let leader = match cluster["leader"].as_i64() {
        Some(leader) => leader.to_string(),
        None => "none".to_string(),
    };
    let quorum = match cluster["quorum"].as_bool() {
        Some(true) => "yes",
        Some(false) | None => "NO",
    };
    let mut text = format!(
        "cluster {}  leader {leader}  term {}  committed {}  quorum {quorum}\n",
        cluster["clusterId"].as_str().unwrap_or("-"),
        cluster["term"],
        cluster["committed"],
    );
    if let Some(what) = cluster["waitsFor"].as_str() {
        text.push_str(&format!("node {} waits for {what}\n", cluster["node"]));
    }
    let heads = [
        "NODE", "ROLE", "IN SYNC", "HEARD", "LAG", "APPLIED", "LOG", "FREE", "RAFT", "KAFKA",
        "HTTP",
    ];
    let mut rows = vec![heads.map(str::to_string)];
    let members = cluster["members"].as_array().map(Vec::as_slice);
    rows.extend(members.unwrap_or_default().iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(member: &Value) -> [String; 11] {
    let text = |name: &str| member[name].as_str().unwrap_or("-").to_string();
    let number = |name: &str| match member[name].as_u64() {
        Some(number) => number.to_string(),
        None => "-".to_string(),
    };
    let heard = match member["heardMsAgo"].as_u64() {
        None => "never".to_string(),
        Some(0..3000) => "now".to_string(),
        Some(ms) => format!("{} s ago", ms / 1000),
    };
    [
        number("id"),
        text("role"),
        if member["inSync"] == true {
            "yes"
        } else {
            "no"
        }
        .to_string(),
        heard,
        number("lag"),
        number("applied"),
        bytes(&member["diskBytes"]),
        bytes(&member["diskFree"]),
        text("raftAddress"),
        text("kafkaAddress"),
        text("httpAddress"),
    ]
}

/// A size for people, in powers of 1024.
fn bytes(value: &Value) -> String {
    let Some(bytes) = value.as_u64() else {
        return "-".to_string();
    };
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut shown = bytes as f64;
    let mut unit = 0;
    while shown >= 1024.0 && unit + 1 < UNITS.len() {
        shown /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{shown:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_what_is_known_and_what_is_not() {
        let cluster = json!({
            "clusterId": "abc", "node": 2, "leader": 1, "term": 3, "committed": 90, "quorum": true,
            "waitsFor": null,
            "members": [
                {"id": 1, "role": "leader", "inSync": true, "heardMsAgo": 12, "lag": 0, "applied": 90,
                 "diskBytes": 7_340_032, "diskFree": null, "raftAddress": "h1:7632"},
                {"id": 3, "role": "follower", "inSync": false, "heardMsAgo": null},
            ],
        });
        let text = table(&cluster);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "cluster abc  leader 1  term 3  committed 90  quorum yes"
        );
        assert!(lines[1].starts_with("NODE  ROLE"), "{text}");
        assert!(
            lines[2].contains("leader") && lines[2].contains("7.0 MiB"),
            "{text}"
        );
        assert!(
            lines[3].contains("never") && lines[3].contains("no"),
            "{text}"
        );
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn without_a_leader_it_says_what_is_waited_for() {
        let cluster = json!({"clusterId": "", "node": 2, "leader": null, "term": 0, "committed": 0,
            "quorum": false, "waitsFor": "peer 1 at h1:7632", "members": []});
        let text = table(&cluster);
        assert!(text.contains("quorum NO"), "{text}");
        assert!(
            text.contains("node 2 waits for peer 1 at h1:7632"),
            "{text}"
        );
    }
}
