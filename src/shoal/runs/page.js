"use strict";
// What a page does beyond being read: values under the pointer, and pictures with a slider. Text is set as text only.
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("role", "status");
tip.hidden = true;
document.body.append(tip);

function show(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18) + "px";
}
const hide = () => { tip.hidden = true; };

const figure = (value) => {
  if (value === null) return "-";
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1e5) return Math.round(value).toLocaleString("en");
  return size < 1e-3 && size > 0 ? value.toExponential(2) : String(Number(value.toPrecision(5)));
};

// -- charts: the values at the nearest x, by pointer or arrow keys -----------------------------------------------
for (const svg of document.querySelectorAll("svg[data-chart]")) {
  const data = JSON.parse(svg.dataset.chart);
  const [x0, x1, left, right] = data.fx;
  const [y0, y1, bottom, top] = data.fy;
  const made = (name) => svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));
  const guide = made("line");
  guide.setAttribute("class", "guide off");
  const dots = data.lines.map((line) => {
    const dot = made("circle");
    dot.setAttribute("class", `dot c${line.c} off`);
    dot.setAttribute("r", 3.5);
    return dot;
  });
  const px = (x) => left + (x1 === x0 ? 0 : (x - x0) / (x1 - x0)) * (right - left);
  const py = (y) => bottom + (y1 === y0 ? 0 : (y - y0) / (y1 - y0)) * (top - bottom);
  let at = data.x.length - 1;

  function point(index, clientX, clientY) {
    at = Math.max(0, Math.min(data.x.length - 1, index));
    const x = px(data.x[at]);
    guide.classList.remove("off");
    for (const [name, value] of [["x1", x], ["x2", x], ["y1", bottom], ["y2", top]]) guide.setAttribute(name, value);
    const words = [`${data.ticks ? data.ticks[at] : figure(data.x[at])} ${data.unit}`];
    data.lines.forEach((line, i) => {
      const y = line.y[at];
      dots[i].classList.toggle("off", y === null);
      if (y !== null) {
        dots[i].setAttribute("cx", x);
        dots[i].setAttribute("cy", py(y));
        const around = line.low ? ` [${figure(line.low[at])}, ${figure(line.high[at])}]` : "";
        words.push(`${line.n}: ${figure(y)}${around}`);
      }
    });
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    show(words.join("\n"), clientX ?? box.left + x * scale, clientY ?? box.top + top * scale);
  }
  function leave() {
    for (const mark of [guide, ...dots]) mark.classList.add("off");
    hide();
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    let best = 0;
    data.x.forEach((x, i) => { if (Math.abs(px(x) - wanted) < Math.abs(px(data.x[best]) - wanted)) best = i; });
    point(best, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("focus", () => point(at));
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === "Escape") leave();
    if (step === undefined) return;
    event.preventDefault();
    point(at + step);
  });
}

// -- words on a mark ---------------------------------------------------------------------------------------------
for (const mark of document.querySelectorAll("[data-tip]")) {
  const here = () => { const box = mark.getBoundingClientRect(); show(mark.dataset.tip, box.right - 10, box.bottom - 14); };
  mark.addEventListener("pointermove", (event) => { event.stopPropagation(); show(mark.dataset.tip, event.clientX, event.clientY); });
  mark.addEventListener("pointerleave", hide);
  mark.addEventListener("focus", here);
  mark.addEventListener("blur", hide);
  mark.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}

// -- a picture with a slider: parts are there from one step to another, and one line of words belongs to each ------
for (const stage of document.querySelectorAll(".stage")) {
  const slider = stage.querySelector("input[type=range]");
  const parts = [...stage.querySelectorAll("[data-from]")].map(
    (part) => [part, Number(part.dataset.from), part.dataset.to === undefined ? Infinity : Number(part.dataset.to)]);
  const followers = [...stage.querySelectorAll("[data-slide]")];
  const lines = [...stage.querySelectorAll("ol.words > li")];
  const said = stage.querySelector(".said");
  const output = stage.querySelector("output");
  const play = stage.querySelector("button");
  let timer = 0;

  function follow(part) { // on a narrow screen the picture is pushed sideways with its marker
    const wide = part.closest(".large");
    if (!wide) return;
    const [a, b] = [part.getBoundingClientRect(), wide.getBoundingClientRect()];
    if (a.left < b.left || a.right > b.right) wide.scrollLeft += (a.left + a.right - b.left - b.right) / 2;
  }
  function turn(moved) {
    const step = Number(slider.value);
    for (const [part, from, to] of parts) part.classList.toggle("off", step < from || step >= to);
    for (const part of followers) part.setAttribute("transform", `translate(${step * Number(part.dataset.slide)} 0)`);
    lines.forEach((line, i) => line.classList.toggle("now", i === step));
    const words = lines[step] ? lines[step].textContent : "";
    said.textContent = words;
    output.textContent = `${step} of ${slider.max}`;
    slider.setAttribute("aria-valuetext", `${step} of ${slider.max}. ${words}`);
    if (moved) followers.forEach(follow);
  }
  function stop() { clearInterval(timer); timer = 0; play.textContent = "\u25b6"; play.setAttribute("aria-label", "play"); }
  function start() {
    if (slider.value === slider.max) slider.value = slider.min;
    play.textContent = "\u275a\u275a";
    play.setAttribute("aria-label", "pause");
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      turn(true);
      if (slider.value === slider.max) stop();
    }, Number(stage.dataset.ms));
  }
  slider.addEventListener("input", () => { if (timer) stop(); turn(true); });
  play.addEventListener("click", () => { if (timer) stop(); else start(); });
  for (const line of lines) line.addEventListener("click", () => { slider.value = lines.indexOf(line); turn(true); });
  stage.querySelector(".controls").hidden = false;
  turn(false);
}
