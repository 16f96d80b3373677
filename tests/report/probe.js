// Added to a copy of the page: reports the visible content before and after choices, and the saved files.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const visible = (selector, within) => all(selector, within).filter(one => one.getBoundingClientRect().height && one.checkVisibility());
const wait = ms => new Promise(done => setTimeout(done, ms));
// Timers run ahead of the clock here (virtual time), other threads of the browser do not: so it works between them.
function work() {
  for (let number = 0, sum = 0; number < 3e6; number++) sum += Math.sqrt(number);
}
async function until(isTrue) {
  for (let tries = 0; tries < 1000 && !isTrue(); tries++) {
    work();
    await wait(100);
  }
}
const charts = () => visible(".figure .chart");
const drawn = () => until(() => charts().every(chart => chart.querySelector(".main-svg")));
const marksOf = chart => chart.data.filter(trace => trace.x[0] !== null && trace.hoverinfo !== "skip");
// Pairs of texts in the same figure that lie on each other, and those that stick out of the page.
const overlaps = () => {
  const found = [];
  for (const chart of charts()) {
    const texts = '[class$="tick"] text, text[class$="title"], .legendtext, .annotation-text, .bartext';
    const boxes = visible(texts, chart).map(one => [one.textContent, one.getBoundingClientRect()]);
    boxes.forEach(([text, one], place) => {
      if (one.right > innerWidth || one.left < 0) found.push(`${chart.parentNode.id}: ${text} is outside`);
      boxes.slice(place + 1).forEach(([other, two]) => {
        const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        const high = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        if (wide > 1.5 && high > 3) found.push(`${chart.parentNode.id}: ${text} / ${other}`);
      });
    });
  }
  return found;
};
const luminance = colour => {
  const [r, g, b] = colour.match(/[0-9.]+/g).map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = element => {
  for (let part = element; part; part = part.parentElement) {
    const colour = getComputedStyle(part).backgroundColor;
    if (/^rgb\(/.test(colour)) return colour;
  }
};
// Texts that are hard to read on what is behind them.
const faint = () => visible("h1, h2, h3, p, li, td, th, button, summary, a, dd, figcaption").filter(one => {
  if (one.closest(".modebar")) return false;
  const [text, behind] = [getComputedStyle(one).color, paper(one)].map(luminance);
  return (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05) < 4.5;
}).map(one => one.textContent.slice(0, 40));
const hidden = chart => [...new Set(chart.data.filter(trace => trace.visible === "legendonly").map(trace => trace.legendgroup))];
function press(element, times) {
  for (let time = 0; time < times; time++)
    for (const kind of ["mousedown", "mouseup"]) element.dispatchEvent(new MouseEvent(kind, {bubbles: true, clientX: 5, clientY: 5}));
}
async function drag(chart) {
  const area = chart.querySelector(".nsewdrag"), {left, top, width, height} = area.getBoundingClientRect();
  const at = (part, kind, target) => target.dispatchEvent(new MouseEvent(kind,
    {bubbles: true, clientX: left + part * width, clientY: top + part * height, buttons: 1}));
  at(0.3, "mousedown", area);
  const cover = () => document.querySelector(".dragcover") ?? document;
  at(0.5, "mousemove", cover());
  at(0.7, "mousemove", cover());
  at(0.7, "mouseup", cover());
  await wait(500);
}
const press_in_modebar = (chart, title) =>
  all(".modebar-btn", chart).find(button => button.dataset.title === title).dispatchEvent(new MouseEvent("click", {bubbles: true}));

addEventListener("load", async () => {
  const seen = {}, blobs = [];
  try {
    await drawn();
    const [chart] = charts().filter(chart => chart.parentNode.id.startsWith("figure-throughput"));
    const measured = charts().filter(chart => /figure-(throughput|loss)/.test(chart.parentNode.id));
    Object.assign(seen, {
      panels: charts().reduce((sum, chart) => sum + chart.layout.meta.panels.length, 0),
      marks: measured.flatMap(marksOf).reduce((sum, trace) => sum + trace.x.length, 0),
      unlabelled: charts().filter(chart => !chart.ariaLabel).length,
      pageWidth: document.documentElement.scrollWidth,
      overlaps: overlaps(),
      faint: faint(),
      background: getComputedStyle(document.body).backgroundColor,
      hiddenAtFirst: chart ? hidden(chart) : [],
      axesAtFirst: chart ? [chart.layout.xaxis.type, chart.layout.yaxis.title.text] : [],
      ink: chart?._fullLayout.font.color,
    });
    if (chart) {
      seen.columns = new Set(all(".nsewdrag", chart).map(one => Math.round(one.getBoundingClientRect().left))).size;
      const trace = marksOf(chart).find(trace => trace.x.length);
      if (trace) Plotly.Fx.hover(chart, {xval: trace.x[0], yval: trace.y[0]}, "xy");
      await wait(100);
      seen.hover = chart.querySelector(".hoverlayer").textContent;
      URL.createObjectURL = blob => (blobs.push(blob), "data:,");
      HTMLAnchorElement.prototype.click = function () { seen.names = [...seen.names ?? [], this.download]; };
      press_in_modebar(chart, "Download the numbers as CSV");
      press_in_modebar(chart, "Download as SVG");
      await until(() => seen.names?.length > 1);
      for (const blob of blobs) seen[blob.type.split(";")[0]] = await blob.text();
      const before = chart.layout.xaxis.range.slice();
      await drag(chart);
      seen.zoomed = chart.layout.xaxis.range[0] > before[0] && chart.layout.xaxis.range[1] < before[1];
      const [sign] = all(".legendtoggle", chart);
      press(sign, 1);
      await wait(1000);
      seen.hidden = charts().filter(other => other.data.some(trace => trace.legendgroup === trace.name)).map(hidden);
      seen.hash = location.hash;
      press(sign, 1);
      await wait(1000);
      seen.shownAgain = hidden(chart);
      press(sign, 2);
      await wait(1000);
      seen.isolated = [...new Set(chart.data.filter(trace => trace.visible === true).map(trace => trace.legendgroup))];
      press(sign, 2);
      await wait(1000);
      for (const value of ["kfps", "log"]) document.querySelector(`button[data-value="${value}"]`).click();
      await wait(1500);
      seen.axes = [chart.layout.xaxis.type, chart.layout.yaxis.title.text];
      seen.largest = Math.max(...marksOf(chart).flatMap(trace => trace.y));
      seen.ticks = all(".ytick text", chart).map(one => one.textContent);
    }
    [...document.querySelectorAll(".choice [data-view]")][1]?.click();
    for (const list of document.querySelectorAll("select[data-pick]")) {
      list.closest("details")?.setAttribute("open", "");
      list.selectedIndex = list.options.length - 1;
      list.dispatchEvent(new Event("change", {bubbles: true}));
    }
    await wait(1000);
    await drawn();
    seen.after = [...new Set(visible(".view").map(one => one.dataset.view))];
    seen.picked = visible(".picked").map(one => one.dataset.value);
    seen.undrawn = charts().filter(chart => !chart.querySelector(".main-svg")).length;
    seen.overlapsAfter = overlaps();
    seen.hashAfter = location.hash;
    dispatchEvent(new Event("beforeprint"));
    await wait(1000);
    seen.onPaper = [...new Set(charts().map(chart => `${chart._fullLayout.width} ${chart._fullLayout.font.color}`))];
  } catch (error) {
    seen.error = error.stack;
  }
  document.getElementById("probe").textContent = JSON.stringify(seen);
});
