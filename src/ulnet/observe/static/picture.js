// The fabric as a picture: nodes on an ellipse, nets in its middle, a line a rail. Built anew when nodes, nets or
// rails come and go; else only what changed of a rail is touched.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 560, NARROW = 600; // pixels of the box below which less fits beside one another

export const make = (name, attributes = {}, ...inside) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
};

export class Picture {
  constructor(container, choose, filter) {
    this.container = container;
    this.choose = choose;
    this.filter = filter;
    this.shape = "";
    this.told = "";
    this.rails = new Map(); // by NID: {element, stroke, title, shown}
    this.order = [];
    this.chosen = null;
    container.addEventListener("keydown", (event) => this.key(event));
  }

  update(frame, describe) {
    const width = this.container.clientWidth < NARROW ? 620 : 1000;
    const shape = JSON.stringify([
      width,
      frame.nodes.map((node) => [node.id, node.name, node.router, node.rails.map((rail) => [rail.nid, rail.net])]),
      frame.nets, frame.routes.map((route) => [route.net, route.gateway]),
    ]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.width = width;
      this.build(frame);
    }
    const bytes = frame.nodes.some((node) => node.rails.some((rail) => rail.bytes));
    const load = (rail) => (bytes ? rail.bytes ?? 0 : rail.messages);
    let most = 1;
    for (const node of frame.nodes) for (const rail of node.rails) most = Math.max(most, load(rail));
    let sick = 0;
    for (const node of frame.nodes) {
      let bad = node.silent;
      for (const rail of node.rails) {
        this.show(rail, node, load(rail) / most, describe);
        bad ||= rail.state !== "up";
        sick += rail.state !== "up";
      }
      const place = this.nodes.get(node.id);
      const style = `node${node.asked ? "" : " seen"}${node.silent ? " silent" : ""}${bad ? " sick" : ""}`;
      if (place.style !== style) place.element.setAttribute("class", (place.style = style));
      if (place.bad !== bad) {
        place.bad = bad;
        place.label.setAttribute("visibility", place.roomy || bad ? "visible" : "hidden");
      }
    }
    for (const route of frame.routes) {
      const line = this.routes.get(`${route.net} ${route.gateway}`);
      line?.setAttribute("class", route.up ? "route" : "route down");
    }
    const told = `${frame.nodes.length} nodes, ${frame.nets.length} nets, ${this.rails.size} rails, ${sick} of them not well`;
    if (this.told !== told) this.svg.setAttribute("aria-label", (this.told = told));
  }

  show(rail, node, share, describe) {
    const place = this.rails.get(rail.nid);
    if (!place) return;
    const width = this.many ? 1 + 3 * Math.sqrt(share) : 2 + 9 * Math.sqrt(share);
    const least = this.many ? 1 : 0.2; // a change of less is not drawn: it would cost more than it tells
    const style = `rail ${rail.state}${node.silent ? " stale" : ""}${rail.nid === this.chosen ? " chosen" : ""}`;
    if (place.style !== style) {
      place.element.setAttribute("class", (place.style = style));
      place.cross.setAttribute("visibility", rail.state === "down" && !node.silent ? "visible" : "hidden");
      if (rail.state !== "up") place.element.parentNode.append(place.element); // on top of those that are well
    }
    if (place.width === undefined || Math.abs(place.width - width) > least) {
      place.width = width;
      place.stroke.style.strokeWidth = rail.state === "down" ? "" : `${width.toFixed(1)}px`;
      place.stroke.style.setProperty("--width", `${width.toFixed(1)}px`);
    }
    const text = describe(rail, node);
    if (place.text !== text && (place.spoken || !this.many || rail.state !== place.state)) {
      place.text = text;
      place.title.textContent = text;
      place.element.setAttribute("aria-label", text);
    }
    place.latest = text;
    place.state = rail.state;
  }

  select(nid) {
    for (const one of [this.chosen, nid]) {
      const place = this.rails.get(one);
      if (place) {
        const style = place.style.replace(" chosen", "") + (one === nid ? " chosen" : "");
        place.element.setAttribute("class", (place.style = style));
        place.element.parentNode.append(place.element); // on top
      }
    }
    this.chosen = nid;
    const place = this.rails.get(nid);
    if (place) this.container.setAttribute("aria-activedescendant", place.element.id);
  }

  key(event) {
    if (event.key === "Enter" || event.key === " ") {
      if (this.chosen) this.choose(this.chosen);
    } else {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !this.order.length) return;
      const at = this.order.indexOf(this.chosen);
      const next = at < 0 ? 0 : (at + step + this.order.length) % this.order.length;
      this.choose(this.order[next]);
    }
    event.preventDefault();
    event.stopPropagation();
  }

  build(frame) {
    const count = frame.nodes.length;
    this.many = count > 40;
    this.rails.clear();
    this.nodes = new Map();
    this.routes = new Map();
    this.order = frame.nodes.flatMap((node) => node.rails.map((rail) => rail.nid));
    const lines = make("g"), bodies = make("g"), hubs = make("g");
    this.told = "";
    this.svg = make("svg", { viewBox: `0 0 ${this.width} ${HEIGHT}`, role: "img", class: this.many ? "many" : "" });
    const nets = this.placeNets(frame, hubs);
    const owner = new Map();
    for (const [node, x, y] of this.placeNodes(frame.nodes)) {
      for (const rail of node.rails) owner.set(rail.nid, [x, y]);
      this.drawRails(node, x, y, nets, lines);
      this.drawNode(node, x, y, count, bodies);
    }
    for (const route of frame.routes) {
      const from = owner.get(route.gateway), to = nets.get(route.net);
      if (!from || !to) continue;
      const line = make("path", { class: "route", d: `M${from[0]} ${from[1]} L${to.x} ${to.y}` });
      this.routes.set(`${route.net} ${route.gateway}`, line);
      lines.prepend(line);
    }
    this.svg.append(lines, hubs, bodies);
    this.container.replaceChildren(this.svg);
  }

  placeNets(frame, hubs) {
    const local = new Set(frame.nodes.flatMap((node) => node.rails.map((rail) => rail.net)));
    const nets = new Map();
    const gap = Math.min(130, (HEIGHT - 140) / Math.max(frame.nets.length - 1, 1));
    frame.nets.forEach((name, at) => {
      const x = this.width / 2, y = HEIGHT / 2 + (at - (frame.nets.length - 1) / 2) * gap;
      const wide = Math.max(70, name.length * 10 + 26);
      const hub = make("g", { class: local.has(name) ? "net" : "net far" },
        make("rect", { x: x - wide / 2, y: y - 17, width: wide, height: 34, rx: 17 }),
        make("text", { x, y }, name));
      hubs.append(hub);
      nets.set(name, { x, y, wide });
    });
    return nets;
  }

  *placeNodes(nodes) {
    const routers = nodes.filter((node) => node.router), others = nodes.filter((node) => !node.router);
    const cx = this.width / 2, cy = HEIGHT / 2, tall = others.length > 2 ? cy - 62 : 0;
    const asked = others.filter((node) => node.asked), seen = others.filter((node) => !node.asked);
    const ring = function* (some, from, span, rx, ry) {
      for (const [at, node] of some.entries()) {
        const angle = from + (span * (at + 0.5)) / some.length;
        yield [node, cx + rx * Math.cos(angle), cy + ry * Math.sin(angle)];
      }
    };
    const rx = cx - 105;
    if (asked.length && seen.length) {
      const left = Math.min(Math.max(asked.length / others.length, 0.2), 0.8) * 2 * Math.PI;
      yield* ring(asked, Math.PI - left / 2, left, rx, tall || cy - 62);
      yield* ring(seen, Math.PI + left / 2, 2 * Math.PI - left, rx, tall || cy - 62);
    } else {
      yield* ring(others, others.length === 2 ? Math.PI / 2 : Math.PI, 2 * Math.PI, rx, tall);
    }
    yield* ring(routers, 0, 2 * Math.PI, cx * 0.42, 120);
  }

  drawRails(node, x, y, nets, lines) {
    const perNet = new Map();
    for (const rail of node.rails) perNet.set(rail.net, (perNet.get(rail.net) ?? 0) + 1);
    const used = new Map();
    for (const rail of node.rails) {
      const hub = nets.get(rail.net);
      const nth = used.get(rail.net) ?? 0, of = perNet.get(rail.net);
      used.set(rail.net, nth + 1);
      const ex = hub.x + Math.sign(x - hub.x) * Math.min(hub.wide / 2, Math.abs(x - hub.x)), ey = hub.y;
      const bend = (nth - (of - 1) / 2) * (this.many ? 8 : 46);
      const length = Math.hypot(ex - x, ey - y) || 1;
      const mx = (x + ex) / 2 - ((ey - y) / length) * bend, my = (y + ey) / 2 + ((ex - x) / length) * bend;
      const d = `M${x.toFixed(1)} ${y.toFixed(1)} Q${mx.toFixed(1)} ${my.toFixed(1)} ${ex.toFixed(1)} ${ey.toFixed(1)}`;
      const stroke = make("path", { class: "stroke", d }), title = make("title");
      const px = (x + ex) / 4 + mx / 2, py = (y + ey) / 4 + my / 2, arm = this.many ? 4 : 8;
      const cross = make("path", {
        class: "cross", visibility: "hidden",
        d: `M${px - arm} ${py - arm} L${px + arm} ${py + arm} M${px - arm} ${py + arm} L${px + arm} ${py - arm}`,
      });
      const element = make("g", { class: "rail up", role: "button", id: `rail-${this.rails.size}` },
        title, make("path", { class: "hit", d }), stroke, cross);
      element.addEventListener("click", () => this.choose(rail.nid));
      const place = { element, stroke, title, cross };
      element.addEventListener("pointerenter", () => {
        place.spoken = true;
        title.textContent = place.latest ?? "";
      });
      lines.append(element);
      this.rails.set(rail.nid, place);
    }
  }

  drawNode(node, x, y, count, bodies) {
    const size = count <= 12 ? 24 : count <= 40 ? 11 : 5;
    const body = node.router
      ? make("rect", { class: "body", x: x - size, y: y - size, width: 2 * size, height: 2 * size, rx: 3, transform: `rotate(45 ${x} ${y})` })
      : make("circle", { class: "body", cx: x, cy: y, r: size });
    const below = y >= HEIGHT / 2 - 1, beside = this.many && Math.abs(x - this.width / 2) > this.width / 4;
    const right = x > this.width / 2;
    const label = beside
      ? make("text", { x: x + (right ? 12 : -12), y, class: right ? "right" : "left" }, short(node.name))
      : make("text", { x, y: y + (below ? size + 16 : -size - 16) }, short(node.name));
    const element = make("g", { class: "node" }, make("title", {}, `${node.name}${node.router ? ", a router" : ""}`), body, label);
    element.addEventListener("click", () => this.filter(node.name));
    element.addEventListener("pointerenter", () => label.setAttribute("visibility", "visible"));
    bodies.append(element);
    this.nodes.set(node.id, { element, label, roomy: count <= 24 });
  }
}

const short = (name) => (name.length > 24 ? `…${name.slice(-23)}` : name);
