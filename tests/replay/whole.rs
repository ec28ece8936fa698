//! The example from its arguments to its output.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{Ran, file, run};

/// Of a, b and c, 2 entries lose one before it comes again, and with LRU all; d comes again at once.
const CSV: &[u8] =
    b"time,key,size\n1,a,10\n2,b,20\n3,c,30\n4,a,10\n5,b,20\n6,c,30\n7,d,40\n8,d,40\n";

fn rows(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

#[test]
fn json_has_an_object_for_each_budget_and_policy() {
    let ran = run(&["-", "--json", "--capacity", "2", "--bytes=1KiB"], CSV);
    let rows = rows(&ran);
    let of = |field: &str| rows.iter().map(|row| row[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("policy"), ["seawall", "LRU", "MIN", "seawall", "LRU", "bound"]);
    assert_eq!(of("budget"), [2, 2, 2, 1024, 1024, 1024]);
    let [e, b] = ["entries", "bytes"];
    assert_eq!(of("unit"), [e, e, e, b, b, b]);
    for row in &rows {
        assert_eq!((&row["requests"], &row["distinct"]), (&8.into(), &4.into()));
        assert_eq!(row["requested_bytes"], 200);
    }
    assert_eq!((&rows[1]["hits"], &rows[1]["evictions"]), (&1.into(), &5.into()));
    assert_eq!(rows[1]["hit_ratio"], 0.125);
    assert_eq!(rows[1]["byte_hit_ratio"], 0.2);
    assert_eq!(rows[1]["missed_bytes"], 160);
    assert_eq!((&rows[2]["hits"], &rows[2]["evictions"]), (&3.into(), &Value::Null));
    // There is room for all.
    for row in &rows[3..] {
        assert_eq!((&row["hits"], &row["missed_bytes"]), (&4.into(), &100.into()));
    }
    for row in [&rows[0], &rows[1], &rows[3], &rows[4]] {
        assert!(row["heap_bytes"].as_u64() > Some(0), "{row}");
        assert_eq!(row["too_heavy"], 0, "{row}");
    }
}

#[test]
fn the_table_says_what_json_says() {
    let ran = run(&["-", "--capacity", "2", "--bytes", "35"], CSV);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.err, "replay: standard input: csv, by its content; 8 requests to replay\n");
    for line in [
        "requests           8",
        "requested bytes    200",
        "compulsory misses  4 (50.00 %)",
        "highest hit ratio  50.00 %",
    ] {
        assert!(ran.out.contains(line), "no {line:?} in\n{}", ran.out);
    }
    let cells = |policy: &str, at: usize| -> Vec<&str> {
        let mut lines = ran.out.lines().filter(|line| line.contains(policy));
        lines.nth(at).expect("a line of this policy").split_whitespace().collect()
    };
    assert_eq!(cells(" LRU ", 0)[..6], ["LRU", "12.50", "%", "20.00", "%", "160"]);
    assert_eq!(cells(" MIN ", 0), ["MIN", "37.50", "%", "-", "-", "-", "-", "-"]);
    assert_eq!(cells("2 entries", 0)[2], "seawall");
    assert_eq!(cells("35 B", 0)[2], "seawall");
    // The key d is requested twice.
    assert!(ran.out.contains("LRU, 35 B: 2 misses were of what is heavier"), "{}", ran.out);
}

#[test]
fn capacities_are_shares_of_the_distinct_keys_if_none_is_given() {
    let keys = |count: u64| (0..count).map(|key| format!("{key}\n")).collect::<String>();
    for (distinct, capacities) in [(1000, &[10, 50, 100, 250][..]), (30, &[1, 3, 7]), (1, &[1])] {
        let ran = run(&["-", "--json"], keys(distinct).as_bytes());
        let lru = rows(&ran).into_iter().filter(|row| row["policy"] == "LRU");
        let budgets: Vec<_> = lru.map(|row| row["budget"].as_u64().unwrap()).collect();
        assert_eq!(budgets, capacities);
    }
}

#[test]
fn help_is_a_result() {
    let ran = run(&["--capacity", "7", "--help"], b"");
    assert_eq!((ran.code, &*ran.err), (0, ""));
    assert!(ran.out.contains("--capacity N") && ran.out.contains("rec16"));
}

#[test]
fn a_file_may_be_named_like_a_flag() {
    let ran = run(&["--json", "--", "--nothing.csv"], b"");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("--nothing.csv: "), "{}", ran.err);
}

/// The example's program, which cargo builds along with the tests unless it is told to build one test only.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let name = format!("replay{}", std::env::consts::EXE_SUFFIX);
    let program = test.parent()?.parent()?.join("examples").join(name);
    program.exists().then_some(program)
}

#[test]
fn the_program_itself() {
    let Some(program) = program() else {
        println!("SKIPPED: the example is not built; `cargo test` builds it");
        return;
    };
    let run = |args: &[&str]| -> Output {
        Command::new(&program).args(args).output().expect("the program starts")
    };
    let path = file("program.csv", CSV);
    let good = run(&[path.to_str().unwrap(), "--capacity", "2"]);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    assert!(String::from_utf8_lossy(&good.stdout).contains("MIN        37.50 %"), "{good:?}");
    for (args, code) in [(&["no/such/file"][..], 1), (&["--capacity", "0", "x"], 2)] {
        let bad = run(args);
        assert_eq!((bad.status.code(), bad.stdout.len()), (Some(code), 0), "{bad:?}");
        assert_eq!(String::from_utf8_lossy(&bad.stderr).lines().count(), 1, "{bad:?}");
    }
}
