// amqplib: a confirm channel with callbacks, which cost less than a promise for each message, and its own window.

import { CONTENT_TYPE, countRetries, load, Progress, RETRIES, run } from './contract.mjs';

const amqplib = load('amqplib');

async function idle({ url }) {
  const { connection } = await open(url);
  await connection.close();
  return 0;
}

async function publish({ url, messages, source, window, body }) {
  const progress = new Progress(messages);
  const { connection, channel } = await open(url, progress);
  let left = messages;
  let unconfirmed = 0;
  const confirmed = (error) => {
    if (error) progress.fail(new Error('a publish was refused'));
    unconfirmed -= 1;
    progress.settle();
    fill();
  };
  const fill = () => {
    for (; left > 0 && unconfirmed < window; left -= 1) {
      unconfirmed += 1;
      channel.sendToQueue(source, body, { persistent: true, contentType: CONTENT_TYPE }, confirmed);
    }
  };
  progress.begin();
  fill();
  return finish(connection, channel, progress);
}

async function consume({ url, messages, source, prefetch }) {
  const progress = new Progress(messages);
  const { connection, channel } = await open(url, progress);
  await channel.prefetch(prefetch);
  await channel.consume(source, async (message) => {
    progress.begin();
    channel.ack(message);
    progress.settle();
  });
  return finish(connection, channel, progress);
}

const retry = (asked) => consumePublishing(asked, (headers) => countRetries(headers, asked.source) < RETRIES);
const move = (asked) => consumePublishing(asked, () => false);

async function consumePublishing({ url, messages, source, target, prefetch }, rejects) {
  const progress = new Progress(messages);
  const { connection, channel } = await open(url, progress);
  await channel.prefetch(prefetch);
  await channel.consume(source, async (message) => {
    progress.begin();
    const { headers, contentType } = message.properties;
    if (rejects(headers)) {
      channel.reject(message, false);
      return;
    }
    channel.sendToQueue(target, message.content, { persistent: true, mandatory: true, headers, contentType }, (error) => {
      if (error) return progress.fail(new Error('a publish was refused'));
      channel.ack(message);
      return progress.settle();
    });
  });
  return finish(connection, channel, progress);
}

async function open(url, progress) {
  const connection = await amqplib.connect(url);
  const channel = await connection.createConfirmChannel();
  channel.on('return', () => progress.fail(new Error('a message was returned')));
  return { connection, channel };
}

async function finish(connection, channel, progress) {
  const seconds = await progress.settled;
  await channel.close();
  await connection.close();
  return seconds;
}

await run('amqplib', { W0: idle, W1: publish, W2: consume, W3: retry, W4: move });
