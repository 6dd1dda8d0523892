// The page shows what the playground tells it five times a second, and sends what the visitor does.
import { drawLane, shortToken } from "./lanes.js";

const at = (id) => document.getElementById(id);

// make returns an element with some properties and children.
function make(tag, properties = {}, ...children) {
	const e = Object.assign(document.createElement(tag), properties);
	e.append(...children);
	return e;
}

// put changes a text only if it differs: screen readers tell what changes.
function put(e, text) {
	if (e.textContent !== text) e.textContent = text;
}

async function act(what) {
	const answer = await fetch("do", { method: "POST", body: JSON.stringify(what) });
	if (!answer.ok) put(at("says"), await answer.text());
}

const button = (text, label, f) => {
	const b = make("button", { type: "button", textContent: text, onclick: f });
	if (label) b.setAttribute("aria-label", label);
	return b;
};

const seconds = (ms) => (Math.max(ms, 0) / 1000).toFixed(1) + " s";

let last; // what was told last, and when
let shown = 0; // the world whose elements there are
let nodes = [];
let processes = [];

// build makes the elements of a world. They stay as long as it does, so that the focus does, too.
function build(told) {
	shown = told.world;
	at("stories").replaceChildren(...told.stories.map((s) => {
		const b = button(s.title, "", () => act({ do: "story", story: s.id }));
		b.id = "story-" + s.id;
		return make("li", {}, b);
	}));
	nodes = told.nodes.map((_, i) => buildNode(i + 1));
	at("nodes").replaceChildren(...nodes.map((n) => n.item));
	processes = told.processes.map((p) => buildProcess(p, told.nodes.length));
	at("processes").replaceChildren(...processes.map((p) => p.item));
	at("log").replaceChildren();
	at("free").elements.what.value = told.settings.what;
	at("free").elements.fencing.checked = told.settings.fencing;
	at("free").elements.guard.checked = told.settings.guard;
}

function buildNode(node) {
	const n = { state: make("p"), fence: make("p"), keys: make("ul", { className: "keys" }) };
	const name = "Node " + node;
	n.stop = button("Stop", "", () => act({ do: n.down ? "start" : "stop", node }));
	n.empty = button("Restart empty", "Restart empty: " + name, () => act({ do: "start", node, on: true }));
	n.freeze = button("Freeze", "", () => act({ do: "freeze", node, on: !n.frozen }));
	n.slow = button("Slow", "", () => act({ do: "slow", node, on: !n.delay }));
	n.clock = button("Clock +3 s", "Clock +3 s: " + name, () => act({ do: "clock", node }));
	n.item = make("li", { className: "node" }, make("h3", { textContent: name }), n.state, n.fence, n.keys,
		make("div", { className: "buttons" }, n.stop, n.empty, n.freeze, n.slow, n.clock));
	n.name = name;
	return n;
}

// toggle shows a button that does something, or ends it.
function toggle(b, on, yes, no, whom) {
	put(b, on ? no : yes);
	b.setAttribute("aria-label", (on ? no : yes) + " " + whom);
}

function showNode(n, told, expiry) {
	Object.assign(n, { down: !told.up, frozen: told.frozen, delay: told.delay });
	n.item.className = "node" + (n.down ? " down" : "") + (n.frozen ? " frozen" : "") + (n.delay ? " slow" : "");
	toggle(n.stop, n.down, "Stop", "Start", n.name);
	toggle(n.freeze, n.frozen, "Freeze", "Thaw", n.name);
	toggle(n.slow, n.delay > 0, "Slow", "Fast", n.name);
	n.freeze.disabled = n.down;
	const state = [n.down ? "stopped" : n.frozen ? "frozen" : n.delay ? "slow" : "up"];
	if (!n.down && told.uptime < 3600) state.push("for " + told.uptime + " s");
	if (told.ahead) state.push("clock +" + told.ahead / 1e9 + " s");
	put(n.state, state.join(", "));
	put(n.fence, told.fence ? "token " + shortToken(told.fence) : "no token");
	n.keys.className = told.keys.length > 3 ? "keys many" : "keys";
	while (n.keys.children.length > told.keys.length) n.keys.lastChild.remove();
	while (n.keys.children.length < told.keys.length) n.keys.append(make("li"));
	told.keys.forEach((k, i) => {
		const li = n.keys.children[i];
		put(li, k.name + ": " + k.has);
		li.style.setProperty("--left", Math.min(100, (100 * k.ttl) / expiry) + "%");
	});
}

function buildProcess(told, count) {
	const name = told.name;
	const p = { name, state: make("p", { className: "state" }), canvas: make("canvas"), ways: [] };
	p.canvas.setAttribute("aria-hidden", "true");
	p.pause = button("Pause", "", () => act({ do: "pause", process: name, on: !p.paused }));
	p.kill = button("Kill", "Kill " + name, () => act({ do: "kill", process: name }));
	const ways = make("div", { className: "buttons ways" });
	ways.setAttribute("role", "group");
	ways.setAttribute("aria-label", "Cut " + name + " off from nodes");
	for (let node = 1; node <= count; node++) {
		const way = button(node, "Cut " + name + " off from node " + node,
			() => act({ do: "cut", process: name, node, on: way.getAttribute("aria-pressed") !== "true" }));
		way.setAttribute("aria-pressed", "false");
		ways.append(way);
		p.ways.push(way);
	}
	p.item = make("li", { className: "process" },
		make("div", {}, make("h3", { textContent: told.reads ? name + ", a reader" : name }), p.state), p.canvas,
		make("div", { className: "buttons" }, p.pause, p.kill, ways));
	return p;
}

// stateOf says in words what a lane shows.
function stateOf(p, now) {
	if (p.dead) return "killed";
	const leases = p.leases.filter((l) => Date.parse(l.until) > now);
	const names = leases.map((l) => l.name).join(", ");
	const until = leases.length ? Math.min(...leases.map((l) => Date.parse(l.until))) - now : 0;
	const token = leases.length && leases[0].token ? ", token " + shortToken(leases[0].token) : "";
	if (p.paused) return leases.length ? "paused, holds for " + seconds(until) : "paused, without a lock";
	switch (p.state) {
	case "waiting":
		return "waiting for " + seconds(now - Date.parse(p.since));
	case "holding":
	case "writing":
		if (!leases.length) return p.state + " after its lease";
		return (p.state === "holding" ? "holds " : "writes ") + names + " for " + seconds(until) + token;
	case "lost":
		return "has lost the lock";
	}
	return p.updates + " done";
}

function showProcess(p, told, all, now) {
	p.paused = told.paused;
	toggle(p.pause, p.paused, "Pause", "Resume", p.name);
	p.pause.disabled = p.kill.disabled = told.dead;
	put(p.state, stateOf(told, now));
	p.state.title = told.trouble;
	p.ways.forEach((w, i) => w.setAttribute("aria-pressed", String(Boolean(all[i].cut[p.name]))));
}

function showResource(told) {
	const t = told.totals;
	const lost = make("span", { className: t.lost ? "lost" : "", textContent: t.lost + " lost" });
	const text = [t.updates + " updates, ", lost, ", " + t.refused + " refused"];
	if (told.settings.what === "readers") text.push(", " + t.reads + " reads");
	text.push("; at most " + t.most + " at once.");
	const p = make("p", {}, ...text);
	if (p.innerHTML !== at("totals").innerHTML) at("totals").replaceChildren(...p.childNodes);
	const rows = told.items.map((it) => {
		const lost = it.updates - it.value;
		const cells = [it.name, it.value, it.updates, lost, it.refused, it.token ? shortToken(it.token) : "none"];
		return make("tr", {}, ...cells.map((c, i) =>
			make("td", { textContent: c, className: i === 3 && lost ? "bad" : "" })));
	});
	at("items").replaceChildren(...rows);
}

function showLog(told) {
	const log = at("log");
	const end = told.first + told.lines.length;
	const from = Math.max(Number(log.dataset.end || 0) * (log.dataset.world === String(told.world)), told.first);
	for (let i = from; i < end; i++) log.prepend(make("li", { textContent: told.lines[i - told.first] }));
	while (log.children.length > told.lines.length) log.lastChild.remove();
	log.dataset.end = end;
	log.dataset.world = told.world;
}

function show(told) {
	if (told.world !== shown) build(told);
	last = { told, at: performance.now() };
	const now = Date.parse(told.now);
	const story = told.stories.find((s) => s.id === told.play.story);
	put(at("title"), story ? story.title : "Free play");
	put(at("says"), story ? told.play.says : "The processes take turns for as long as you like.");
	put(at("sentence"), (told.play.failed ? "Not as expected: " : "") + told.play.sentence);
	at("sentence").className = told.play.failed || told.totals.lost > 0 ? "bad" : "";
	for (const s of told.stories) {
		at("story-" + s.id).setAttribute("aria-current", String(s === story));
	}
	const ttls = told.nodes.flatMap((n) => n.keys.map((k) => k.ttl));
	nodes.forEach((n, i) => showNode(n, told.nodes[i], Math.max(4000, ...ttls)));
	processes.forEach((p, i) => showProcess(p, told.processes[i], told.nodes, now));
	showResource(told);
	showLog(told);
}

// animate draws the lanes, as far as time has come since the last message.
function animate() {
	if (!last) return;
	const since = Math.min(performance.now() - last.at, 500);
	const now = Date.parse(last.told.now) + since;
	processes.forEach((p, i) => drawLane(p.canvas, last.told.processes[i], now));
}

// Twenty times a second is smooth enough at this speed.
setInterval(() => requestAnimationFrame(animate), 50);

at("free").addEventListener("submit", (e) => {
	e.preventDefault();
	const f = e.target.elements;
	act({ do: "free", settings: { what: f.what.value, fencing: f.fencing.checked, guard: f.guard.checked } });
});

const events = new EventSource("events");
events.onmessage = (e) => {
	at("gone").hidden = true;
	show(JSON.parse(e.data));
};
events.onerror = () => { at("gone").hidden = false; };
