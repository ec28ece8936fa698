"use strict";
// Tells the values under the pointer, for all settings of the act at the same moment.
const short = (count) => {
  const units = ["", "\u202fk", "\u202fM", "\u202fG", "\u202fT", "\u202fP", "\u202fE"];
  let unit = 0;
  while (count >= 1000 && unit + 1 < units.length) { count /= 1000; unit += 1; }
  return Number(count.toPrecision(3)) + units[unit];
};
const duration = (micros) =>
  micros < 1e3 ? `${micros}\u202fµs`
    : micros < 1e6 ? `${Number((micros / 1e3).toPrecision(3))}\u202fms`
      : `${Number((micros / 1e6).toPrecision(3))}\u202fs`;
const states = ["fresh", "stale", "absent", "refused", "failed"];
const told = ([at, peak, p50, p99, ...counts]) => {
  const some = states.map((state, place) => [counts[place], state]).filter(([count]) => count > 0);
  const served = some.map(([count, state]) => `${short(count)} ${state}`).join(", ");
  const latency = p99 > 0 ? `p50 ${duration(p50)}, p99 ${duration(p99)}` : "no request ended";
  return `${at / 1000}\u202fs: at most ${short(peak)} calls; ${latency}${served && "; "}${served}`;
};

for (const runs of document.querySelectorAll(".runs")) {
  const cards = Array.from(runs.querySelectorAll(".run"), (card) => ({
    length: Number(card.dataset.length),
    samples: card.dataset.samples.split(",").filter(Boolean).map((text) => text.split(" ").map(Number)),
    readout: card.querySelector(".readout"),
    cursors: Array.from(card.querySelectorAll(".plot svg"), (svg) => {
      const line = document.createElementNS(svg.namespaceURI, "path");
      line.setAttribute("class", "cursor");
      svg.append(line);
      return { line, box: svg.viewBox.baseVal };
    }),
  }));
  const show = (part) => {
    for (const { length, samples, readout, cursors } of cards) {
      const sample = part === null ? undefined : samples.findLast(([at]) => at <= part * length);
      readout.textContent = sample ? told(sample) : "";
      for (const { line, box } of cursors) {
        line.setAttribute("d", sample ? `M${part * box.width} 0V${box.height}` : "");
      }
    }
  };
  const follow = (event) => {
    const svg = event.target.closest(".plot svg");
    if (!svg) return;
    const { left, width } = svg.getBoundingClientRect();
    show(Math.min(Math.max((event.clientX - left) / width, 0), 1));
  };
  runs.addEventListener("pointerdown", follow);
  runs.addEventListener("pointermove", follow);
  runs.addEventListener("pointerleave", () => show(null));
}
