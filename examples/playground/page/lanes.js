// A lane shows one process: what it did, a line below it for its leases, and on the right what is
// left of the present one.

const speed = 36; // pixels of a second
const past = 0.78; // how much of the width has been

const words = { waiting: "waits", holding: "holds", writing: "writes", lost: "lost", paused: "paused", dead: "killed" };

let style; // of the page, in which its colours are
const colour = (name) => style.getPropertyValue("--" + name);

// shortToken leaves out the digits that are the same in all tokens of a minute.
export const shortToken = (token) => "…" + String(token).slice(-8);

// drawLane draws what a process has done up to now.
export function drawLane(canvas, process, now) {
	style ??= getComputedStyle(document.documentElement);
	const width = canvas.clientWidth, height = canvas.clientHeight;
	const scale = window.devicePixelRatio || 1;
	if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
		canvas.width = Math.round(width * scale);
		canvas.height = Math.round(height * scale);
	}
	const c = canvas.getContext("2d");
	c.setTransform(scale, 0, 0, scale, 0, 0);
	c.clearRect(0, 0, width, height);
	const x = (time) => Math.round((width * past + ((time - now) / 1000) * speed) * 2) / 2;
	const bar = height - 12;
	c.fillStyle = colour("idle");
	c.fillRect(0, 0, width * past, bar);
	process.states.forEach((s, i) => {
		const next = process.states[i + 1];
		const from = Math.max(0, x(Date.parse(s.from)));
		const to = next ? Math.min(x(Date.parse(next.from)), width * past) : width * past;
		if (to > 0 && s.state !== "idle") drawState(c, s.state, from, to, bar);
	});
	for (const l of process.leases) drawLease(c, l, x, bar, width, now);
	c.fillStyle = colour("soft");
	c.fillRect(width * past, 0, 1.5, height);
}

function drawState(c, state, from, to, bar) {
	c.fillStyle = colour(state);
	c.fillRect(from, 0, Math.max(to - from, 1), bar);
	const text = words[state];
	c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
	if (c.measureText(text).width + 8 > to - from) return;
	c.fillStyle = colour(["writing", "lost", "dead"].includes(state) ? "on-strong" : "on-state");
	c.textBaseline = "middle";
	c.fillText(text, from + 4, bar / 2 + 1);
}

function drawLease(c, lease, x, bar, width, now) {
	const from = Math.max(0, x(Date.parse(lease.from)));
	const until = Date.parse(lease.until);
	const to = Math.min(width, x(until));
	if (to < 0) return;
	c.fillStyle = colour("lease");
	c.fillRect(from, bar + 3, Math.max(to - from - 1, 1), 4);
	if (until > now && lease.token && width - x(now) > 70) {
		c.font = "11px system-ui, 'DejaVu Sans', sans-serif";
		c.fillStyle = colour("soft");
		c.textBaseline = "middle";
		c.fillText(shortToken(lease.token), x(now) + 5, bar / 2 + 1);
	}
}
