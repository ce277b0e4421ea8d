// The page of `ulnet dash`: takes frames from the server, draws the picture, the table, plots, events and details.

import { Picture } from "./picture.js";

const byId = (id) => document.getElementById(id);
const el = (name, attributes = {}, ...inside) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
};
const UNITS = ["", "k", "M", "G", "T", "P"];
export const number = (value) => {
  if (value === null || value === undefined) return "–";
  let at = 0;
  while (value >= 999.5 && at < UNITS.length - 1) { value /= 1000; at += 1; }
  return (value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1)) + UNITS[at];
};
const volume = (value) => (value === null || value === undefined ? "–" : `${number(value)}B`);
const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });
const GRAVE = { silent: 4, down: 3, unwell: 2, drained: 1, up: 0 };
const MOST_ROWS = 100, MOST_EVENTS = 300, MOST_LINES = 8, KEPT = 600;

const state = { frame: null, chosen: null, paused: false, all: false, filter: "", sort: ["state", -1], of: "bytes" };
const stateOf = (rail, node) => (node.silent ? "silent" : rail.state);
const describe = (rail, node) =>
  `Rail ${rail.nid} of ${node.name}: ${stateOf(rail, node)}${rail.why ? ` (${rail.why})` : ""}, ` +
  `health ${rail.health ?? "not known"}, ${number(rail.messages)} messages a second` +
  (rail.bytes === null ? "" : `, ${volume(rail.bytes)} a second`);

// Table ---------------------------------------------------------------------------------------------

const COLUMNS = [
  ["node", "Node", (rail, node) => node.name, true],
  ["nid", "NID", (rail) => rail.nid, true],
  ["if", "Interface", (rail) => rail.if ?? "", true],
  ["state", "State", (rail, node) => stateOf(rail, node), true, (rail, node) => GRAVE[stateOf(rail, node)]],
  ["health", "Health", (rail) => rail.health ?? "–", false, (rail) => rail.health ?? 1001],
  ["bytes", "Bytes/s", (rail) => volume(rail.bytes), false, (rail) => rail.bytes ?? -1],
  ["messages", "Messages/s", (rail) => number(rail.messages), false, (rail) => rail.messages],
  ["credits", "Credits", (rail) => (rail.most == null ? "–" : `${rail.credits ?? "–"}/${rail.most}`), false, (rail) => rail.credits ?? 1e9],
  ["low", "Low", (rail) => rail.low ?? "–", false, (rail) => rail.low ?? 1e9],
  ["waiting", "Queue", (rail) => rail.waiting ?? "–", false, (rail) => rail.waiting ?? -1],
  ["failed", "Failed", (rail) => rail.failed ?? "–", false, (rail) => rail.failed ?? -1],
];

class Table {
  constructor(section) {
    this.head = section.querySelector("thead tr");
    this.body = section.querySelector("tbody");
    this.more = byId("more");
    this.rows = new Map();
    for (const [key, title, , word] of COLUMNS) {
      const button = el("button", { type: "button" }, title);
      button.addEventListener("click", () => {
        const [sort, way] = state.sort;
        state.sort = [key, sort === key ? -way : word && key !== "state" ? 1 : -1];
        draw();
      });
      this.head.append(el("th", { scope: "col", class: word ? "word" : "", "data-key": key }, button));
    }
  }

  update(frame) {
    for (const th of this.head.children) {
      const [sort, way] = state.sort;
      if (th.dataset.key === sort) th.setAttribute("aria-sort", way < 0 ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    const column = COLUMNS.find(([key]) => key === state.sort[0]);
    const value = column[4] ?? column[2], words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    let found = [];
    for (const node of frame.nodes) {
      for (const rail of node.rails) {
        if (words.length) {
          const text = COLUMNS.map(([, , show]) => show(rail, node)).join(" ").toLowerCase() + " " + rail.net;
          if (!words.every((word) => text.includes(word))) continue;
        }
        found.push([rail, node, value(rail, node)]);
      }
    }
    const way = state.sort[1];
    found.sort((a, b) => (a[2] < b[2] ? -way : a[2] > b[2] ? way : a[0].nid < b[0].nid ? -1 : 1));
    const total = found.length;
    if (!state.all) found = found.slice(0, MOST_ROWS);
    const busy = this.body.contains(document.activeElement);
    const wanted = found.map(([rail, node]) => this.row(rail, node));
    const keys = new Set(found.map(([rail]) => rail.nid));
    for (const [nid, row] of this.rows) {
      if (!keys.has(nid)) { row.element.remove(); this.rows.delete(nid); }
    }
    wanted.forEach((element, at) => {
      if (this.body.children[at] !== element && (!busy || !element.isConnected)) {
        this.body.insertBefore(element, this.body.children[at] ?? null);
      }
    });
    this.tellMore(total, found.length);
  }

  row(rail, node) {
    let row = this.rows.get(rail.nid);
    if (!row) {
      const cells = COLUMNS.map(([, , , word]) => el("td", { class: word ? "word" : "" }));
      const button = el("button", { type: "button" });
      button.addEventListener("click", () => choose(rail.nid));
      cells[1].append(button);
      row = { element: el("tr", {}, ...cells), cells, button, texts: [] };
      this.rows.set(rail.nid, row);
    }
    COLUMNS.forEach(([key, , show], at) => {
      const text = String(show(rail, node));
      if (row.texts[at] === text) return;
      row.texts[at] = text;
      if (key === "nid") row.button.textContent = text;
      else row.cells[at].textContent = text;
      if (key === "state") row.cells[at].className = `word state ${text}`;
    });
    const chosen = rail.nid === state.chosen;
    if (row.chosen !== chosen) {
      row.chosen = chosen;
      row.element.classList.toggle("chosen", chosen);
      row.button.setAttribute("aria-current", String(chosen));
    }
    return row.element;
  }

  tellMore(total, shown) {
    const text = shown < total ? `${shown} of ${total} rails are shown: filter, or ` : "";
    if (this.told === text) return;
    this.told = text;
    this.more.replaceChildren(text);
    if (!text) return;
    const button = el("button", { type: "button" }, "show all");
    button.addEventListener("click", () => { state.all = true; draw(); });
    this.more.append(button);
  }
}

// Plots ---------------------------------------------------------------------------------------------

const COLOURS = ["#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#06b6d4", "#d946ef", "#84cc16"];
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Plot {
  // Lines of rails over time; `pick` tells which, of a frame.
  constructor(box, height, pick, of) {
    Object.assign(this, { box, height, pick, of, nids: "", times: [], past: new Map() });
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(box);
  }

  size() { return { width: Math.max(this.box.clientWidth, 200), height: this.height }; }

  async update(frame, rails) {
    const nids = this.pick(frame);
    const key = JSON.stringify([nids, this.of(), document.documentElement.dataset.theme, dark.matches]);
    if (key !== this.nids) {
      this.nids = key;
      await this.begin(nids);
      return;
    }
    if (!this.plot || frame.at <= this.times.at(-1)) return;
    this.times.push(frame.at);
    for (const nid of nids) this.past.get(nid)?.push(this.value(rails.get(nid)));
    if (this.times.length > KEPT) {
      this.times.shift();
      for (const values of this.past.values()) values.shift();
    }
    this.plot.setData([this.times, ...nids.map((nid) => this.past.get(nid))]);
  }

  value(rail) {
    const value = rail?.[this.of()];
    return value === undefined || value === null ? null : value;
  }

  async begin(nids) {
    const key = this.nids;
    const query = nids.map((nid) => `nid=${encodeURIComponent(nid)}`).join("&");
    const past = nids.length ? await (await fetch(`history?${query}`)).json() : {};
    if (key !== this.nids) return; // another choice came meanwhile
    const at = { messages: 1, bytes: 2, health: 3 }[this.of()];
    const times = [...new Set(nids.flatMap((nid) => past[nid]?.[0] ?? []))].sort((a, b) => a - b).slice(-KEPT);
    const place = new Map(times.map((time, index) => [time, index]));
    this.times = times;
    this.past = new Map(nids.map((nid) => {
      const values = new Array(times.length).fill(null);
      (past[nid]?.[0] ?? []).forEach((time, index) => {
        if (place.has(time)) values[place.get(time)] = past[nid][at][index];
      });
      return [nid, values];
    }));
    this.plot?.destroy();
    const grid = { stroke: ink("--line"), width: 1 }, axis = { stroke: ink("--dim"), grid, ticks: grid };
    this.plot = new uPlot({
      ...this.size(),
      scales: { y: { range: (u, low, high) => [0, this.of() === "health" ? 1050 : Math.max(high * 1.08, 1)] } },
      axes: [{ ...axis, space: 80, values: (u, times) => times.map(clock) }, { ...axis, size: 62, values: (u, values) => values.map(number) }],
      series: [{ value: (u, time) => (time ? clock(time) : "–") }, ...nids.map((nid, index) => ({
        label: nid, stroke: COLOURS[index % COLOURS.length], width: 1.6, spanGaps: true,
        value: (u, value) => number(value),
      }))],
    }, [this.times, ...nids.map((nid) => this.past.get(nid))], this.box);
  }
}

const busiest = (frame) => {
  const found = frame.nodes.filter((node) => node.asked).flatMap((node) => node.rails);
  const known = found.some((rail) => rail.bytes);
  const load = (rail) => (known ? rail.bytes ?? 0 : rail.messages);
  const kept = new Set(busiest.last?.filter((nid) => found.some((rail) => rail.nid === nid)) ?? []);
  // Those that are plotted stay unless others carry twice as much: lines should not jump.
  found.sort((a, b) => load(b) * (kept.has(b.nid) ? 2 : 1) - load(a) * (kept.has(a.nid) ? 2 : 1) || (a.nid < b.nid ? -1 : 1));
  const nids = found.slice(0, MOST_LINES).map((rail) => rail.nid).sort();
  busiest.last = nids;
  return nids;
};

// Details -------------------------------------------------------------------------------------------

const detail = { nid: null, facts: null, plot: null };

const open = async (nid, to) => {
  const body = byId("detail-body");
  byId("detail-title").textContent = `Rail ${nid}`;
  detail.nid = nid;
  detail.facts = el("dl");
  const reasons = el("div", {}, el("p", { class: "hint" }, "asking the node …"));
  const box = el("div", { role: "img", "aria-label": `Messages a second of ${nid}` });
  body.replaceChildren(detail.facts, el("h3", {}, "Messages/s"), box, reasons);
  detail.plot = new Plot(box, 130, () => [nid], () => "messages");
  draw();
  const answer = await fetch(`rail?nid=${encodeURIComponent(nid)}${to ? `&to=${encodeURIComponent(to)}` : ""}`);
  const told = await answer.json();
  if (detail.nid !== nid) return;
  reasons.replaceChildren(...(told.error ? [el("p", { class: "hint" }, told.error)] : sections(told)));
};

const sections = (told) => {
  const found = [];
  if (told.to) {
    const select = el("select", { "aria-label": "Peer that a message goes to" },
      ...[...new Set([told.to, ...told.peers])].map((nid) => el("option", { value: nid }, nid)));
    select.value = told.to;
    select.addEventListener("change", () => open(told.nid, select.value));
    found.push(el("h3", {}, "Path of a message to ", select));
  }
  if (told.refused) found.push(el("p", {}, told.refused));
  if (told.explain) {
    const { from, to, via, stages, case: which } = told.explain;
    found.push(el("p", {}, el("strong", {}, [from, via, to].filter(Boolean).join(" → ")), ` (${which})`));
    found.push(...stages.map(stage));
    found.push(...told.notes.map((note) => el("p", { class: "hint" }, note)));
  }
  found.push(el("h3", {}, "Commands to try"), el("ul", { class: "commands" }, ...told.commands.map(command)));
  return found;
};

const stage = ({ stage: name, candidates }) => {
  const criteria = [...new Set(candidates.flatMap((one) => Object.keys(one.values)))];
  const shown = (value) => (value === undefined ? "–" : value === true ? "yes" : value === false ? "no" : value === 4294967295 ? "none" : +(+value).toPrecision(5));
  return el("div", { class: "stage", tabindex: 0, role: "region", "aria-label": `Candidates: ${name}` }, el("table", {},
    el("thead", {}, el("tr", {}, ...[name, ...criteria, "outcome"].map((head) => el("th", { scope: "col", class: head === name || head === "outcome" ? "word" : "" }, head)))),
    el("tbody", {}, ...candidates.map((one) => el("tr", { class: one.outcome === "chosen" ? "won" : one.outcome === "kept" ? "" : "out" },
      el("td", { class: "word" }, one.name), ...criteria.map((key) => el("td", {}, String(shown(one.values[key])))), el("td", { class: "word" }, one.outcome))))));
};

const command = ({ line, why }) => {
  const copy = el("button", { type: "button", "aria-label": `Copy: ${line}` }, "copy");
  copy.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(line); copy.textContent = "copied"; }
    catch { copy.textContent = "select it"; }
    setTimeout(() => { copy.textContent = "copy"; }, 2000);
  });
  return el("li", {}, el("div", { class: "what" }, why, copy), el("code", { tabindex: 0 }, line));
};

const facts = (rail, node) => {
  const pairs = [
    ["Node", node.name], ["Net", rail.net], ["Interface", rail.if], ["Health", rail.health ?? "–"],
    ["Traffic", `${number(rail.messages)} messages/s${rail.bytes === null ? "" : `, ${volume(rail.bytes)}/s`}`],
    ["Credits", rail.most == null ? "" : `${rail.credits ?? "–"} of ${rail.most} free, ${rail.low ?? "–"} at least`],
    ["Queue", rail.waiting ?? ""], ["Sent again", rail.resent ?? ""], ["Failed", rail.failed ?? ""],
  ].filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const now = stateOf(rail, node);
  const why = node.silent ? node.why : rail.why;
  return [el("dt", {}, "State"), el("dd", {}, el("span", { class: `state ${now}` }, now), why ? ` ${why}` : "", rail.since && !node.silent ? ` since ${clock(rail.since)}` : ""),
    ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])];
};

// Events --------------------------------------------------------------------------------------------

const BAD = /health|silent|does not answer|gone|degraded|down/, GOOD = /is well|answers again|is new|as fast/;
const line = (event) => {
  const change = [event.before, event.after].filter(Boolean).join(" → ");
  const text = `${event.node}: ${event.subject === "node" ? "" : `${event.subject}: `}${event.kind}${change ? ` ${change}` : ""}${event.why ? ` (${event.why})` : ""}`;
  const grade = GOOD.test(event.kind) || event.after === "up" ? "good" : BAD.test(`${event.kind} ${event.after}`) ? "bad" : "";
  return el("li", { class: grade }, el("time", { datetime: new Date(event.at * 1000).toISOString() }, clock(event.at)), text);
};
const log = (events, anew) => {
  const list = byId("events");
  if (anew) list.replaceChildren();
  list.prepend(...events.map(line).reverse());
  while (list.children.length > MOST_EVENTS) list.lastChild.remove();
};

// What no node sees alone ---------------------------------------------------------------------------

const sights = (findings) => {
  const key = JSON.stringify(findings);
  if (sights.key === key) return;
  sights.key = key;
  byId("wide").hidden = !findings.length;
  byId("sights").replaceChildren(...findings.map(({ level, where, text }) =>
    el("li", { class: level === "note" ? "" : "bad" }, el("strong", {}, `${level}: ${where}`), `: ${text}`)));
};

// The whole -----------------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
const table = new Table(byId("rails"));
const choose = (nid) => {
  state.chosen = nid;
  history.replaceState(null, "", `#${encodeURIComponent(nid)}`);
  picture.select(nid);
  open(nid);
};
const picture = new Picture(byId("picture"), choose, (name) => {
  byId("filter").value = state.filter = name;
  draw();
});
const series = new Plot(byId("plot"), 260, busiest, () => state.of);
let waiting = false;

const draw = () => {
  if (waiting || !state.frame) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    render(state.frame);
  });
};

const render = (frame) => {
  const rails = new Map(), owners = new Map();
  for (const node of frame.nodes) for (const rail of node.rails) { rails.set(rail.nid, rail); owners.set(rail.nid, node); }
  picture.update(frame, describe);
  table.update(frame);
  series.update(frame, rails);
  sights(frame.findings);
  const rail = rails.get(detail.nid);
  if (rail) {
    const node = owners.get(detail.nid);
    const key = JSON.stringify([rail, node.silent]);
    if (detail.key !== key) { detail.key = key; detail.facts.replaceChildren(...facts(rail, node)); }
    detail.plot.update(frame, rails);
  }
  const bad = [...rails].filter(([nid, one]) => one.state !== "up").length;
  const silent = frame.nodes.filter((node) => node.silent).length;
  const words = `${frame.nodes.length} nodes, ${frame.nets.length} nets, ${rails.size} rails`;
  const wrong = [silent && `${silent} nodes do not answer`, bad && `${bad} rails not well`].filter(Boolean).join(", ");
  byId("summary").replaceChildren(`${words}: `, wrong ? el("strong", {}, wrong) : "all well", ` · ${clock(frame.at)}`);
  document.title = `${wrong ? `(${bad + silent}) ` : ""}ulnet dash`;
  if (render.wrong !== wrong) {
    if (render.wrong !== undefined) byId("said").textContent = wrong || "all is well again";
    render.wrong = wrong;
  }
  document.documentElement.dataset.frames = String(Number(document.documentElement.dataset.frames ?? 0) + 1);
};

const listen = () => {
  const source = new EventSource("frames");
  const badge = (text, style) => {
    byId("link").textContent = text;
    byId("link").className = `badge ${style}`;
  };
  source.addEventListener("past", (message) => { listen.held = []; log(JSON.parse(message.data), true); });
  source.addEventListener("frame", (message) => {
    badge(state.paused ? "paused" : "live", state.paused ? "" : "live");
    const frame = JSON.parse(message.data);
    listen.held = [...listen.held, ...frame.events].slice(-MOST_EVENTS);
    if (state.paused) return;
    log(listen.held.splice(0), false);
    state.frame = frame;
    draw();
  });
  source.addEventListener("error", () => {
    badge("connection lost: trying again", "lost");
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
};
listen.held = []; // events that came while the page was paused

byId("filter").addEventListener("input", (event) => { state.filter = event.target.value; draw(); });
for (const button of document.querySelectorAll("[data-of]")) {
  button.addEventListener("click", () => {
    state.of = button.dataset.of;
    for (const one of document.querySelectorAll("[data-of]")) one.setAttribute("aria-pressed", String(one === button));
    draw();
  });
}
const pause = () => {
  state.paused = !state.paused;
  byId("pause").setAttribute("aria-pressed", String(state.paused));
  byId("pause").textContent = state.paused ? "Go on" : "Pause";
};
byId("pause").addEventListener("click", pause);
document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target === document.body) { event.preventDefault(); pause(); }
  if (event.key === "/" && !event.target.matches("input, select")) { event.preventDefault(); byId("filter").focus(); }
});
const THEMES = ["auto", "light", "dark"];
const dress = (theme) => {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  draw();
};
let theme = localStorage.getItem("theme") ?? "auto";
byId("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem("theme", theme);
  dress(theme);
});
dark.addEventListener("change", draw);
dress(theme);
listen();
if (location.hash.length > 1) choose(decodeURIComponent(location.hash.slice(1)));
