// A team of clients of npm's libraries: redlock for sets of names, and redis-semaphore for slots.
// It speaks as teamMain in family.go does. Its argument is the directory of the modules.
const { createInterface } = require("node:readline");
const path = require("node:path");
const load = (name) => require(path.join(process.argv[2], name));
const { Redis } = load("ioredis");
const { default: Redlock } = load("redlock");
const { RedlockSemaphore } = load("redis-semaphore");

const { tasks } = JSON.parse(process.env.REDLOCK_BENCHMARK_HELPER, (key, value) =>
  key === "Team" ? { tasks: value.Tasks } : value
).Team;
const expiry = 8000;
const sleep = (ms) => new Promise((done) => setTimeout(done, Math.max(ms, 0)));
const now = () => Math.round((performance.timeOrigin + performance.now()) * 1e6);
const ms = (nanoseconds) => nanoseconds / 1e6;

const clients = tasks.map((task) => {
  const nodes = task.Addrs.map((addr) => {
    const [host, port] = addr.split(":");
    const node = new Redis({ host, port: +port, maxRetriesPerRequest: 0, retryStrategy: () => 1000 });
    node.on("error", () => {});
    return node;
  });
  return { task, nodes, redlock: new Redlock(nodes, { retryCount: -1 }) };
});

async function turn({ task, nodes, redlock }, work) {
  if (task.Op === "any") {
    const name = task.Names[0].replace(/#\d+$/, "");
    const semaphore = new RedlockSemaphore(nodes, name, task.Names.length, {
      lockTimeout: expiry, acquireTimeout: 5000, retryInterval: 10,
    });
    await semaphore.acquire();
    try {
      await work();
    } finally {
      await semaphore.release();
    }
    return;
  }
  const lock = await redlock.acquire(task.Names, expiry);
  try {
    await work();
  } finally {
    await lock.release().catch(() => {});
  }
}

async function shift({ Start, For }) {
  const start = Date.parse(Start);
  const end = start + ms(For);
  await sleep(start - Date.now());
  const log = { Turns: clients.map(() => []), CPU: 0, Err: "" };
  await Promise.all(
    clients.map(async (client, i) => {
      while (Date.now() < end) {
        const t = { Asked: now(), Granted: 0, Released: 0 };
        log.Turns[i].push(t);
        const worked = turn(client, async () => {
          t.Granted = now();
          await sleep(ms(client.task.Hold));
          t.Released = now();
        }).catch((err) => (log.Err = String(err)));
        await Promise.race([worked, sleep(end + 200 - Date.now())]);
      }
    })
  );
  return log;
}

(async () => {
  await sleep(500); // connections are opened
  console.log(JSON.stringify("ready"));
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await shift(JSON.parse(line))));
  }
  process.exit(0);
})();
