// Locks by node-redlock, as it is told on standard input.
//
// Each line is a JSON object: {"op": "acquire", "name": ..., "ttl": milliseconds}, or "release" or "extend" of what
// was acquired. The answer is one too: {"ok": ..., "value": ...}. The arguments are the nodes, as host:port.

const readline = require("readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const clients = process.argv.slice(2).map((addr) => {
  const at = addr.lastIndexOf(":");
  return new Redis(Number(addr.slice(at + 1)), addr.slice(0, at));
});
const redlock = new Redlock(clients, { retryCount: 0 });
redlock.on("error", () => {}); // what matters is in the answers
const held = new Map();

const ops = {
  async acquire({ name, ttl }) {
    const lock = await redlock.acquire([name], ttl);
    held.set(name, lock);
    return { ok: true, value: lock.value };
  },
  async release({ name }) {
    const lock = held.get(name);
    held.delete(name);
    await lock.release();
    return { ok: true };
  },
  async extend({ name, ttl }) {
    held.set(name, await held.get(name).extend(ttl));
    return { ok: true };
  },
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    const answer = await ops[request.op](request).catch((err) => ({ ok: false, error: err.message }));
    console.log(JSON.stringify(answer));
  }
  clients.forEach((client) => client.disconnect());
})();
