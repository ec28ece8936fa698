"use strict";
// Looks at the report in frames of several widths, and at the picture, and says what is wrong.
const complaints = [];
const dark = document.body.dataset.dark === "true";

const luminance = ([r, g, b]) => {
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
};
const rgb = (colour) => colour.match(/[\d.]+/g).map(Number);
const contrast = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const ground = (element, view) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgb(view.getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const own = (element) =>
  Array.from(element.childNodes, (node) => (node.nodeType === 3 ? node.data.trim() : "")).join("");

const measure = (frame) => {
  const view = frame.contentWindow;
  const page = frame.contentDocument;
  const width = page.documentElement.clientWidth;
  const complain = (what, element) => {
    const where = element ? ` <${element.localName} class="${element.getAttribute("class")}">` : "";
    complaints.push(`${frame.width}: ${what}${where} ${element ? own(element).slice(0, 40) : ""}`);
  };
  if (view.matchMedia("(prefers-color-scheme: dark)").matches !== dark) complain("wrong scheme");
  if (page.documentElement.scrollWidth > width) complain("the page scrolls sideways");
  if (view.performance.getEntriesByType("resource").length > 0) complain("something was fetched");

  for (const element of page.body.querySelectorAll("*")) {
    if (element.closest(".unseen, script, svg")) continue;
    const box = element.getBoundingClientRect();
    if (box.right > width + 1 && !element.closest(".scroll table")) complain("beyond the edge", element);
    if (own(element) === "") continue;
    const style = view.getComputedStyle(element);
    if (parseFloat(style.fontSize) < 12) complain("small text", element);
    if (contrast(rgb(style.color), ground(element, view)) < 4.5) complain("faint text", element);
    if (element.matches("td, th, figcaption *") && element.scrollWidth > element.clientWidth + 1
      && style.display !== "inline") complain("text is cut off", element);
  }
  for (const label of page.querySelectorAll(".ticks span, .events li")) {
    const [inner, outer] = [label, label.closest(".run")].map((one) => one.getBoundingClientRect());
    if (inner.left < outer.left || inner.right > outer.right) complain("outside of its card", label);
  }
  for (const scroll of page.querySelectorAll(".scroll")) {
    if (scroll.tabIndex !== 0) complain("out of the keyboard's reach", scroll);
  }
  const plots = page.querySelectorAll(".plot svg");
  for (const plot of plots) {
    const { width, height } = plot.getBoundingClientRect();
    if (!(width > 150 && height > 60)) complain(`a chart of ${width} by ${height}`, plot);
  }
  const plot = plots[0];
  if (plot) {
    const { left, top, width } = plot.getBoundingClientRect();
    const at = { bubbles: true, clientX: left + width / 2, clientY: top + 5 };
    plot.dispatchEvent(new view.PointerEvent("pointermove", at));
    if (!page.querySelector(".readout").textContent) complain("no readout");
  }
  return plots.length;
};

const look = (picture) => {
  const { width, height } = picture.viewBox.baseVal;
  const texts = Array.from(picture.querySelectorAll("text"), (text) => ({ text, box: text.getBBox() }));
  texts.forEach(({ text, box }, place) => {
    const inside = box.x >= 0 && box.y >= 0 && box.x + box.width <= width && box.y + box.height <= height;
    if (!inside) complaints.push(`picture: beyond its edge: ${text.textContent}`);
    for (const other of texts.slice(place + 1)) {
      const apart = box.x + box.width <= other.box.x || other.box.x + other.box.width <= box.x
        || box.y + box.height <= other.box.y + 2 || other.box.y + other.box.height <= box.y + 2;
      if (!apart) complaints.push(`picture: ${text.textContent} lies upon ${other.text.textContent}`);
    }
  });
  return texts.length;
};

addEventListener("load", () => {
  const frames = Array.from(document.querySelectorAll("iframe"));
  const plots = frames.map(measure);
  const texts = Array.from(document.querySelectorAll("#picture > svg"), look);
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = [`${plots.join(" ")} plots, ${texts.join(" ")} texts`, ...new Set(complaints)].join("\n");
  document.body.replaceChildren(result);
});
