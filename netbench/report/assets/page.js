"use strict";
// Figures are drawn already. This shows one of several views, tells of marks that are pointed at, and saves figures.
const every = (selector, within = document) => [...within.querySelectorAll(selector)];

// The numbers of a figure, what is told of its marks, and its other scales: unpacked once, when first asked for.
async function unpacked({type, textContent}) {
  if (type === "application/json") return JSON.parse(textContent);
  const bytes = Uint8Array.from(atob(textContent), sign => sign.charCodeAt(0));
  const {readable, writable} = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  writer.write(bytes);
  writer.close();
  return new Response(readable).json();
}
const more = figure => figure.more ??= unpacked(figure.querySelector("script"));

// A choice of scenario and number of sources, or of the scale, applies to the whole page.
function choose(name, value) {
  for (const button of every(`.choice [data-${name}]`))
    button.setAttribute("aria-pressed", String(button.dataset[name] === value));
  if (name === "scale") every(".figure").forEach(figure => rescale(figure, value));
  else every(".view").forEach(part => reveal(part, part.dataset.view === value));
}
function pick(list) {
  for (const part of every(`.picked[data-pick="${list.dataset.pick}"]`)) reveal(part, part.dataset.value === list.value);
}
async function reveal(part, shown) {
  part.hidden = !shown;
  if (shown) await unfolded(part);
}
async function unfolded(part) {
  const content = part.querySelector(":scope > script");
  if (!content) return;
  content.remove();
  part.insertAdjacentHTML("beforeend", await unpacked(content));
  every("select[data-pick]", part).forEach(pick);
  const scale = document.querySelector('.choice [data-scale][aria-pressed="true"]')?.dataset.scale;
  if (scale) every(".figure", part).forEach(figure => rescale(figure, scale));
}
async function rescale(figure, scale) {
  const parts = every(":scope > .scale", figure);
  if (!parts[0].dataset.scale) return;
  if (!parts.some(part => part.dataset.scale === scale)) {
    parts.at(-1).insertAdjacentHTML("afterend", (await more(figure)).scales[scale]);
    parts.push(parts.at(-1).nextElementSibling);
  }
  for (const part of parts) part.hidden = part.dataset.scale !== scale;
}
document.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (button?.dataset.view) choose("view", button.dataset.view);
  if (button?.dataset.scale) choose("scale", button.dataset.scale);
  if (button?.dataset.save) save(button.closest(".figure"), button.dataset.save);
});
// Of what is folded no event bubbles.
document.addEventListener("toggle", event => { if (event.target.open) unfolded(event.target); }, true);
document.addEventListener("change", event => { if (event.target.matches("[data-pick]")) pick(event.target); });
every("select[data-pick]").forEach(pick);
for (const name of ["view", "scale"]) {
  const first = document.querySelector(`.choice [data-${name}]`);
  if (first) choose(name, first.dataset[name]);
}

// A link leads to what is folded, too.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();

const tip = document.getElementById("tip");
let pointed;
async function tell(event) {
  const mark = pointed = event.target.closest?.("[data-n]");
  if (!mark) return void (tip.hidden = true);
  const {tips} = await more(mark.closest(".figure"));
  if (mark !== pointed) return;
  tip.hidden = false;
  tip.textContent = tips[mark.dataset.n];
  const {width, height} = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}
document.addEventListener("pointerover", tell);
document.addEventListener("pointerdown", tell);

function csv({columns, rows}) {
  const cell = value => value === null ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value;
  return [columns, ...rows].map(row => row.map(cell).join(",")).join("\n") + "\n";
}

// The figure as it stands on the page, in the colours of paper, every panel and sign at its place.
function drawing(figure) {
  const scale = every(".scale", figure).find(part => !part.hidden);
  const origin = scale.getBoundingClientRect();
  const parts = [];
  let bottom = origin.height;
  for (const part of every(":scope > .panels > svg, :scope > .legend svg", scale)) {
    const {left, top} = part.getBoundingClientRect();
    const {width, height} = getComputedStyle(part);
    const copy = part.cloneNode(true);
    copy.removeAttribute("style");
    const place = {x: left - origin.left, y: top - origin.top, width: parseFloat(width), height: parseFloat(height)};
    for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
    parts.push(new XMLSerializer().serializeToString(copy));
  }
  const line = document.createElementNS("http://www.w3.org/2000/svg", "text");
  const written = (text, x, y) => {
    line.textContent = text;
    for (const [name, value] of Object.entries({x, y, "font-size": 12, fill: "var(--ink)"})) line.setAttribute(name, value);
    parts.push(new XMLSerializer().serializeToString(line));
  };
  for (const name of every(":scope > .legend span", scale)) {
    const {left, top, height} = name.getBoundingClientRect();
    written(name.textContent, left - origin.left, top - origin.top + height / 2 + 4);
  }
  for (const remark of every(".remark", figure)) written(remark.textContent, 0, bottom += 18);
  const font = getComputedStyle(document.body).fontFamily.replaceAll('"', "'");
  const light = JSON.parse(document.getElementById("light").textContent);
  const [width, height] = [Math.ceil(origin.width) + 16, Math.ceil(bottom) + 16];
  const size = `width="${width}" height="${height}" viewBox="-8 -4 ${width} ${height}" font-family="${font}"`;
  const text = `<svg xmlns="http://www.w3.org/2000/svg" ${size}><style>svg:not([viewBox]) { overflow: visible; }</style>` +
    `<rect x="-8" y="-4" width="100%" height="100%" fill="var(--paper)"/>${parts.join("")}</svg>`;
  return {text: text.replace(/var\(--([a-z0-9]+)\)/g, (_, name) => light[name]), width, height};
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
async function save(figure, kind) {
  const name = `${figure.id.replace("figure-", "")}.${kind}`;
  if (kind === "csv") return download(new Blob([csv(await more(figure))], {type: "text/csv"}), name);
  const {text, width, height} = drawing(figure);
  const blob = new Blob([text], {type: "image/svg+xml"});
  if (kind === "svg") return download(blob, name);
  const image = new Image();
  image.src = URL.createObjectURL(blob);
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), {width: 2 * width, height: 2 * height});
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob(picture => download(picture, name));
}
