// What the harness and a client program agree on, for the programs written for Node: see contract.py.
//
// Packages are found in the folder the program is started in, not beside this file: they are no part of the project.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';

const LIFE_S_MAX = 120;
const LINGER_MS = 500;
export const RETRIES = 3;
export const CONTENT_TYPE = 'application/json';
export const load = createRequire(join(process.cwd(), 'package.json'));

// Counts outcomes and keeps the time: from `begin`, at the first message, to the last `settle`.
export class Progress {
  constructor(messages) {
    this.left = messages;
    const seconds = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.fail = reject;
    });
    // Before anything is closed the broker needs a moment for the last acks: see contract.py.
    this.settled = seconds.then(async (result) => {
      await setTimeout(LINGER_MS);
      return result;
    });
  }

  begin() {
    this.started ??= performance.now();
  }

  settle() {
    this.left -= 1;
    if (this.left === 0) this.resolve((performance.now() - this.started) / 1000);
  }
}

// How often `queue` rejected the message, by its x-death header.
export function countRetries(headers, queue) {
  const death = (headers?.['x-death'] ?? []).find((each) => each.queue === queue && each.reason === 'rejected');
  return death === undefined ? 0 : Number(death.count);
}

// The whole of a client program: read the command line, do the workload, print the result.
export async function run(library, workloads) {
  setTimeout(LIFE_S_MAX * 1000, 1, { ref: false }).then((code) => process.exit(code));
  const [workload, url, messages, source, target, window, prefetch, body] = process.argv.slice(2);
  if (body === undefined || !(workload in workloads)) {
    console.error(`usage: ${Object.keys(workloads).join('|')} URL MESSAGES SOURCE TARGET WINDOW PREFETCH BODY`);
    process.exit(2);
  }
  const seconds = await workloads[workload]({
    url,
    messages: Number(messages),
    source,
    target,
    window: Number(window),
    prefetch: Number(prefetch),
    body: Buffer.from(body),
  });
  const { version } = JSON.parse(readFileSync(join('node_modules', library, 'package.json'), 'utf8'));
  const named = `${library} ${version}, Node ${process.versions.node}`;
  console.log(JSON.stringify({ seconds, messages: Number(messages), library: named }));
}
