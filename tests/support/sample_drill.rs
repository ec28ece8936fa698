//! A sample of a drill: invented figures in the shape of real ones, the same ones each time.

use crate::record::{Act, Drill, Run, Sample, Setting, Summary};

pub(crate) const ACTS: [Act; 6] =
    [Act::Steady, Act::Midnight, Act::Outage, Act::Flood, Act::Loss, Act::HangUp];

pub(crate) const SETTINGS: [Setting; 5] =
    [Setting::None, Setting::Coalescing, Setting::CoalescingStale, Setting::All, Setting::Moka];

const LIMIT: u64 = 64;
const SLICE_MS: u64 = 100;
const LENGTH_MS: u64 = 8_000;

/// Every act under every setting.
pub(crate) fn drill() -> Drill {
    let both = |act| SETTINGS.map(|setting| run(act, setting));
    Drill {
        scale:
            "Sample, not measured: 2 cores, 400 clients, 20 000 articles, 6 000 requests a second"
                .to_owned(),
        runs: ACTS.into_iter().flat_map(both).collect(),
    }
}

pub(crate) fn run(act: Act, setting: Setting) -> Run {
    let samples: Vec<Sample> =
        (0..LENGTH_MS / SLICE_MS).map(|place| sample(act, setting, place * SLICE_MS)).collect();
    let events: Vec<(u64, &'static str)> = match act {
        Act::Steady => vec![],
        Act::Midnight => vec![(2_000, "midnight")],
        Act::Outage => vec![(1_500, "hangs"), (3_000, "errors"), (4_500, "recovers")],
        Act::Flood => vec![(1_500, "flood"), (6_500, "ebb")],
        Act::Loss => vec![(2_000, "cache lost")],
        Act::HangUp => vec![(2_000, "hang-ups")],
    };
    let recovery_ms = recovery(act, setting);
    Run {
        act,
        setting,
        length_ms: LENGTH_MS,
        events,
        summary: summary(&samples, recovery_ms),
        samples,
    }
}

fn recovery(act: Act, setting: Setting) -> Option<u64> {
    match (act, setting) {
        (Act::Steady, _) | (Act::Flood, Setting::All) => Some(0),
        (Act::HangUp, _) => Some(120),
        (_, Setting::None) => None,
        (_, Setting::All) => Some(350),
        (_, Setting::CoalescingStale) => Some(900),
        (_, Setting::Coalescing | Setting::Moka) => Some(2_400),
    }
}

/// How hard an act hits the origin at a time of it, from 0 to 1.
fn stress(act: Act, setting: Setting, at_ms: u64) -> f64 {
    let since = |event: u64| at_ms.checked_sub(event).map(|past| past as f64);
    let fading = |event, half: f64| since(event).map_or(0.0, |past| 0.5_f64.powf(past / half));
    let half = match setting {
        Setting::None => 60_000.0,
        Setting::Coalescing | Setting::Moka => 900.0,
        Setting::CoalescingStale => 400.0,
        Setting::All => 150.0,
    };
    match act {
        Act::Steady => 0.0,
        Act::Midnight | Act::Loss => fading(2_000, half),
        Act::Outage if (1_500..4_500).contains(&at_ms) => 0.9,
        Act::Outage => fading(4_500, half),
        Act::Flood if (1_500..6_500).contains(&at_ms) => 0.7,
        Act::Flood => 0.0,
        Act::HangUp => fading(2_000, 200.0) * 0.3,
    }
}

fn sample(act: Act, setting: Setting, at_ms: u64) -> Sample {
    // Some unrest, so that lines do not look ruled.
    let unrest = 0.85 + (at_ms / SLICE_MS * 37 % 29) as f64 / 90.0;
    let stress = stress(act, setting, at_ms) * unrest;
    let most = match setting {
        Setting::None => 420.0,
        Setting::Coalescing | Setting::Moka => 190.0,
        Setting::CoalescingStale => 110.0,
        Setting::All => 48.0,
    };
    let part = |share: f64| (600.0 * unrest * share) as u64;
    let lost = if setting == Setting::None { stress.min(0.95) } else { stress * 0.2 };
    let (stale, refused, failed) = match setting {
        Setting::All => (stress.min(0.9), stress * 0.008, 0.0),
        Setting::CoalescingStale => (stress * 0.6, 0.0, lost * 0.3),
        _ => (0.0, 0.0, lost),
    };
    let absent = if act == Act::Flood { 0.3 * stress } else { 0.01 };
    let hung = act == Act::Outage && setting == Setting::None && (1_800..2_600).contains(&at_ms);
    if hung {
        return Sample { at_ms, origin_peak: 420, ..Sample::default() };
    }
    Sample {
        at_ms,
        origin_peak: ((6.0 * unrest + most * stress) as u64).min(most as u64),
        fresh: part((1.0 - stale - refused - failed - absent).max(0.0)),
        stale: part(stale),
        absent: part(absent),
        refused: part(refused),
        failed: part(failed),
        p50_us: (180.0 * unrest * (1.0 + lost * 2_000.0)) as u64,
        p99_us: (4_000.0 * unrest * (1.0 + lost * 500.0)) as u64,
    }
}

fn summary(samples: &[Sample], recovery_ms: Option<u64>) -> Summary {
    let sum = |count: fn(&Sample) -> u64| samples.iter().map(count).sum::<u64>();
    let most = |figure: fn(&Sample) -> u64| samples.iter().map(figure).max().unwrap_or(0);
    let answered = sum(|sample| sample.fresh + sample.stale);
    let missed = sum(|sample| sample.refused + sample.failed);
    Summary {
        requests: answered + missed + sum(|sample| sample.absent),
        fresh: sum(|sample| sample.fresh),
        stale: sum(|sample| sample.stale),
        absent: sum(|sample| sample.absent),
        refused: sum(|sample| sample.refused),
        failed: sum(|sample| sample.failed),
        existing: answered + missed,
        existing_answered: answered,
        p50_us: sum(|sample| sample.p50_us) / samples.len() as u64,
        p99_us: most(|sample| sample.p99_us) * 9 / 10,
        p999_us: most(|sample| sample.p99_us) * 11 / 10,
        origin_calls: sum(|sample| sample.origin_peak * 3),
        origin_peak: most(|sample| sample.origin_peak),
        origin_limit: LIMIT,
        waiters_peak: most(|sample| sample.origin_peak) * 2,
        retries: missed * 2,
        recovery_ms,
    }
}
