//! The whole drill, short and small: what holds on any machine, however busy it is.

use crate::drill;
use crate::record::{Act, Run, Setting};
use crate::sizes::Sizes;
use crate::table;

#[tokio::main]
async fn run(act: Act, setting: Setting) -> Run {
    let sizes = Sizes::new(400.0, 1_024, 0.4);
    let run = drill::run(act, setting, &sizes, || {}).await.expect("sockets on loopback");
    check(&run, &sizes);
    run
}

/// What holds under every setting.
fn check(run: &Run, sizes: &Sizes) {
    let it = &run.summary;
    let schedule = run.act.schedule(sizes);
    assert!(it.requests > 0 && it.requests <= schedule.len() as u64);
    assert_eq!(it.requests, it.fresh + it.stale + it.absent + it.refused + it.failed);
    assert!(it.existing_answered <= it.existing && it.existing <= it.requests);
    assert_eq!(it.existing_answered, it.fresh + it.stale);
    assert!(it.p50_us <= it.p99_us && it.p99_us <= it.p999_us);
    let in_samples: u64 =
        run.samples.iter().map(|it| it.fresh + it.stale + it.absent + it.refused + it.failed).sum();
    assert!(in_samples > 0 && in_samples <= it.requests);
    let line: serde_json::Value = serde_json::from_str(&table::json(run)).expect("JSON");
    assert_eq!(line["origin_peak"], it.origin_peak);
}

#[test]
fn all_guards_keep_the_origin_within_its_limit() {
    for act in Act::ALL {
        let it = run(act, Setting::All).summary;
        assert!(it.origin_peak <= it.origin_limit, "{act:?}: {it:?}");
    }
}

#[test]
fn every_setting_counts_every_request_once() {
    for setting in Setting::ALL {
        run(Act::Loss, setting);
    }
}

#[test]
fn without_guards_nothing_is_stale_or_refused() {
    for setting in [Setting::None, Setting::Coalescing, Setting::Moka] {
        let it = run(Act::Midnight, setting).summary;
        assert_eq!((it.stale, it.refused), (0, 0), "{setting:?}");
    }
}

#[test]
fn the_screen_keeps_what_does_not_exist_from_the_origin() {
    let [guarded, plain] = [Setting::All, Setting::None].map(|it| run(Act::Flood, it).summary);
    assert!(guarded.origin_calls < plain.origin_calls / 2, "{guarded:?} {plain:?}");
}
