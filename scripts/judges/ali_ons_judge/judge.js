// npm's client ali-ons as the judge of a RocketMQ cluster: node judge.js NAMESERVER RUN [CASE...]
//
// Each case has a topic and a group of its own, ons-NAME-RUN and ons-group-NAME-RUN. The client makes no topics: those,
// and the groups' retry topics, must be there. What a case came to is one line: "case NAME passed", or "case NAME
// failed REASON".
'use strict';

const assert = require('assert');
const { Consumer, Message, Producer } = require('ali-ons');

const PATIENCE_MS = 30000;
const QUIET_MS = 1500;

const [ nameserver, run, ...wanted ] = process.argv.slice(2);
const logger = { info() {}, warn() {}, debug() {}, error(...words) { console.log('client:', ...words); } };
const httpclient = { request() { throw new Error('no address server is asked'); } };
const common = { httpclient, logger, nameSrv: nameserver, accessKeyId: 'key', accessKeySecret: 'secret' };

const pause = ms => new Promise(done => setTimeout(done, ms));

async function until(isTrue, what) {
  const end = Date.now() + PATIENCE_MS;
  while (!isTrue()) {
    if (Date.now() > end) throw new Error(`no ${what} within ${PATIENCE_MS} ms`);
    await pause(20);
  }
}

/** The names, clients and messages of one case. */
class Case {
  constructor(name) {
    this.topic = `ons-${name}-${run}`;
    this.group = `ons-group-${name}-${run}`;
    this.clients = [];
  }

  async producer(options = {}) {
    const producer = new Producer({ ...common, producerGroup: `ons-producers-${run}`, ...options });
    producer.on('error', error => console.log('producer:', error.message));
    await producer.ready();
    this.clients.push(producer);
    return producer;
  }

  /** A consumer, with the messages that it got. `handle` may ask for another attempt. */
  async consumer(expression = '*', options = {}, handle = () => undefined) {
    const got = [];
    const consumer = new Consumer({
      ...common, consumerGroup: this.group, rebalanceInterval: 1000, pollNameServerInteval: 1000, ...options,
    });
    consumer.on('error', error => console.log('consumer:', error.message));
    consumer.subscribe(this.topic, expression, async message => {
      got.push(message);
      return handle(message);
    });
    await consumer.ready();
    this.clients.push(consumer);
    return got;
  }

  message(number, tag = '', body = `body ${number}`) {
    const message = new Message(this.topic, tag, body);
    message.keys = [ `k${number}` ];
    return message;
  }

  /** Send messages; where each was stored. */
  async send(producer, count, tag = () => '') {
    const sent = [];
    for (let number = 0; number < count; number++) {
      sent.push(await producer.send(this.message(number, tag(number))));
    }
    return sent;
  }

  async close() {
    for (const client of this.clients) await client.close();
  }
}

const keys = messages => messages.map(message => message.keys).sort();
const numbered = count => [...Array(count).keys()].map(number => `k${number}`).sort();

const cases = {
  async send(self) {
    const sent = await self.send(await self.producer(), 20);
    assert(sent.every(result => result.sendStatus === 'SEND_OK'), 'not all were stored');
    const places = new Set(sent.map(result => `${result.messageQueue.queueId}/${result.queueOffset}`));
    assert.strictEqual(places.size, 20, 'two messages have one place');
    assert(new Set(sent.map(result => result.messageQueue.queueId)).size > 1, 'one queue has all');
  },

  async at_once(self) {
    const producer = await self.producer();
    await producer.send(self.message(0));
    const sending = [];
    for (let number = 1; number < 100; number++) sending.push(producer.send(self.message(number)));
    const sent = await Promise.all(sending);
    assert(sent.every(result => result.sendStatus === 'SEND_OK'), 'not all were stored');
  },

  async push(self) {
    const producer = await self.producer();
    await self.send(producer, 20);
    const got = await self.consumer();
    await until(() => got.length >= 20, 'twenty messages');
    await pause(QUIET_MS);
    assert.deepStrictEqual(keys(got), numbered(20));
    assert.deepStrictEqual(got.map(message => message.body.toString()).sort(), numbered(20).map(key => `body ${key.slice(1)}`).sort());
    const began = Date.now();
    await producer.send(self.message(20));
    await until(() => got.length === 21, 'message at once');
    assert(Date.now() - began < 1000, 'a long poll was not answered on arrival');
  },

  async offsets(self) {
    const producer = await self.producer();
    await self.send(producer, 10);
    const first = await self.consumer();
    await until(() => first.length === 10, 'ten messages');
    await self.clients.pop().close();
    await producer.send(self.message(10));
    const second = await self.consumer();
    await until(() => second.length > 0, 'message after the others');
    await pause(QUIET_MS);
    assert.deepStrictEqual(keys(second), [ 'k10' ]);
  },

  async tags(self) {
    await self.send(await self.producer(), 30, number => 'ABC'[number % 3]);
    const got = await self.consumer('A || B');
    await until(() => got.length >= 20, 'twenty messages');
    await pause(QUIET_MS);
    assert.deepStrictEqual(got.map(message => message.tags).sort().join(''), 'A'.repeat(10) + 'B'.repeat(10));
  },

  async ordered_sending(self) {
    const producer = await self.producer();
    await producer.send(self.message('first'));
    const queues = new Set();
    for (let number = 0; number < 10; number++) {
      const message = self.message(number);
      message.shardingKey = 'same';
      queues.add((await producer.send(message)).messageQueue.queueId);
    }
    assert.strictEqual(queues.size, 1, 'one key is in several queues');
    const got = await self.consumer();
    await until(() => got.length === 11, 'eleven messages');
    const ordered = got.filter(message => message.keys !== 'kfirst').map(message => message.keys);
    assert.deepStrictEqual(ordered, [...Array(10).keys()].map(number => `k${number}`));
  },

  async delay(self) {
    const producer = await self.producer();
    const got = await self.consumer();
    await producer.send(self.message('first'));
    await until(() => got.length === 1, 'first message');
    const message = self.message('late');
    message.delayTimeLevel = 2;
    const began = Date.now();
    await producer.send(message);
    await until(() => got.length === 2, 'delayed message');
    const took = Date.now() - began;
    assert(took >= 4900 && took < 8000, `level 2 took ${took} ms`);
  },

  async broadcast(self) {
    const producer = await self.producer();
    await self.send(producer, 1);
    const options = { isBroadcast: true };
    const one = await self.consumer('*', { ...options, instanceName: `one-${run}` });
    const two = await self.consumer('*', { ...options, instanceName: `two-${run}` });
    await pause(3000);
    one.length = two.length = 0;
    await self.send(producer, 20);
    await until(() => one.length >= 20 && two.length >= 20, 'twenty messages each');
    await pause(QUIET_MS);
    assert.deepStrictEqual([ keys(one), keys(two) ], [ numbered(20), numbered(20) ]);
  },

  async sharing(self) {
    const producer = await self.producer();
    await self.send(producer, 1);
    const one = await self.consumer('*', { instanceName: `one-${run}` });
    const two = await self.consumer('*', { instanceName: `two-${run}` });
    await pause(5000);
    one.length = two.length = 0;
    await self.send(producer, 40);
    await until(() => one.length + two.length >= 40, 'forty messages');
    await pause(QUIET_MS);
    assert.deepStrictEqual(keys([...one, ...two]), numbered(40));
    assert(one.length > 0 && two.length > 0, `one had ${one.length}, the other ${two.length}`);
  },

  async retry(self) {
    await self.send(await self.producer(), 1);
    const times = [];
    const again = message => {
      times.push(message.reconsumeTimes);
      return times.length === 1 ? Consumer.ACTION_RETRY : undefined;
    };
    await self.consumer('*', {}, again);
    await until(() => times.length === 2, 'second attempt');
    await pause(QUIET_MS);
    assert.deepStrictEqual(times, [ 0, 1 ]);
  },

  async compression(self) {
    const producer = await self.producer();
    const body = 'compressible '.repeat(2000);
    await producer.send(self.message(0, '', body));
    const got = await self.consumer();
    await until(() => got.length === 1, 'long message');
    assert.strictEqual(got[0].body.toString(), body);
  },

  async two_nameservers(self) {
    const producer = await self.producer({ nameSrv: [ '127.0.0.1:1', nameserver ], instanceName: `two-${run}` });
    const sent = await self.send(producer, 4);
    assert(sent.every(result => result.sendStatus === 'SEND_OK'), 'not all were stored');
  },
};

async function main() {
  for (const [ name, body ] of Object.entries(cases)) {
    if (wanted.length && !wanted.includes(name)) continue;
    const self = new Case(name);
    try {
      await body(self);
      console.log(`case ${name} passed`);
    } catch (error) {
      console.log(`case ${name} failed ${error.message.split('\n')[0]}`);
    }
    try {
      await self.close();
    } catch (error) {
      console.log('close:', error.message);
    }
  }
  process.exit(0);
}

// The client's own producer, beside each consumer, has nobody who listens to its errors.
process.on('uncaughtException', error => console.log('client:', error.message));
main();
