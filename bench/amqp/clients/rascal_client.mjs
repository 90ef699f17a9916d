// rascal with its default configuration; publications borrow a confirm channel from its pool for each message.

import { CONTENT_TYPE, countRetries, load, Progress, RETRIES, run } from './contract.mjs';

const { BrokerAsPromised, withDefaultConfig } = load('rascal');
// A publication keeps its channel until it is confirmed; more channels make it faster up to rascal's limit of 100.
const CHANNELS = 90;

async function idle({ url, source, target, prefetch }) {
  const broker = await create(url, source, target, prefetch);
  await broker.shutdown();
  return 0;
}

async function publish({ url, messages, source, window, body, prefetch }) {
  const progress = new Progress(messages);
  const broker = await create(url, source, source, prefetch);
  let left = messages;
  const publishNext = async () => {
    if (left === 0) return;
    left -= 1;
    await send(broker, body, { contentType: CONTENT_TYPE }, progress);
    progress.settle();
    publishNext();
  };
  progress.begin();
  for (let each = 0; each < Math.min(window, messages); each += 1) publishNext();
  return finish(broker, progress);
}

async function consume({ url, messages, source, target, prefetch }) {
  const progress = new Progress(messages);
  const broker = await create(url, source, target, prefetch);
  await subscribe(broker, progress, async (message, content, ackOrNack) => {
    progress.begin();
    ackOrNack();
    progress.settle();
  });
  return finish(broker, progress);
}

const retry = (asked) => consumePublishing(asked, (headers) => countRetries(headers, asked.source) < RETRIES);
const move = (asked) => consumePublishing(asked, () => false);

async function consumePublishing({ url, messages, source, target, prefetch }, rejects) {
  const progress = new Progress(messages);
  const broker = await create(url, source, target, prefetch);
  await subscribe(broker, progress, async (message, content, ackOrNack) => {
    progress.begin();
    const { headers, contentType } = message.properties;
    if (rejects(headers)) {
      ackOrNack(new Error('again'), { strategy: 'nack' });
      return;
    }
    await send(broker, message.content, { headers, contentType }, progress);
    ackOrNack();
    progress.settle();
  });
  return finish(broker, progress);
}

function create(url, source, target, prefetch) {
  // The queues are there already; `mandatory`, `persistent` and `confirm` are rascal's defaults.
  const queues = { [source]: { assert: false }, [target]: { assert: false } };
  const confirmPool = { max: CHANNELS, min: CHANNELS, autostart: true };
  return BrokerAsPromised.create(
    withDefaultConfig({
      vhosts: { '/': { connection: { url }, queues, publicationChannelPools: { confirmPool } } },
      publications: { out: { vhost: '/', queue: target } },
      subscriptions: { in: { vhost: '/', queue: source, prefetch } },
    }),
  );
}

async function send(broker, body, options, progress) {
  const publication = await broker.publish('out', body, { options });
  return new Promise((resolve) => {
    publication.on('success', resolve);
    publication.on('error', progress.fail);
    publication.on('return', () => progress.fail(new Error('a message was returned')));
  });
}

async function subscribe(broker, progress, handler) {
  const subscription = await broker.subscribe('in');
  subscription.on('message', handler);
  subscription.on('error', progress.fail);
}

async function finish(broker, progress) {
  const seconds = await progress.settled;
  await broker.shutdown();
  return seconds;
}

await run('rascal', { W0: idle, W1: publish, W2: consume, W3: retry, W4: move });
