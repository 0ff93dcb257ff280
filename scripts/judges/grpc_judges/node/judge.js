// RocketMQ 5's official Node.js client as the judge of a proxy: node judge.js ENDPOINT RUN CASE...
//
// Each case has a topic and a group of its own, grpc-NAME-RUN and grpc-group-NAME-RUN, which must be there. What a case
// came to is one line: "case NAME passed", or "case NAME failed REASON".
'use strict';

const assert = require('assert');
const {
  ConsumeResult, FilterExpression, LitePushConsumerImpl, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
// The package's root does not export these.
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const PATIENCE_MS = 30000;
const AWAIT_MS = 5000;
const HIDDEN_MS = 15000;

const [ endpoints, run, ...wanted ] = process.argv.slice(2);
const silent = { info() {}, warn() {}, debug() {}, error(...words) { console.log('client:', ...words); } };

const pause = ms => new Promise(done => setTimeout(done, ms));
const numbers = (first, end) => [ ...Array(end - first).keys() ].map(number => String(first + number));
const bodies = messages => messages.map(message => message.body.toString());
const byNumber = (one, other) => Number(one) - Number(other);

async function until(isTrue, what) {
  const end = Date.now() + PATIENCE_MS;
  while (!isTrue()) {
    if (Date.now() > end) throw new Error(`no ${what} within ${PATIENCE_MS} ms`);
    await pause(20);
  }
}

/** The names and clients of one case. */
class Case {
  constructor(name) {
    this.topic = `grpc-${name}-${run}`;
    this.group = `grpc-group-${name}-${run}`;
    this.common = { endpoints, namespace: '', logger: silent };
    this.clients = [];
  }

  async start(client) {
    await client.startup();
    this.clients.push(client);
    return client;
  }

  producer(options = {}) {
    return this.start(new Producer({ ...this.common, topic: this.topic, ...options }));
  }

  /** A consumer of the group's dead letters, which must be there. */
  letters() {
    const subscriptions = new Map([[ `%DLQ%${this.group}`, FilterExpression.SUB_ALL ]]);
    return this.consumer('*', FilterType.TAG, { consumerGroup: `${this.group}-letters`, subscriptions });
  }

  consumer(expression = '*', type = FilterType.TAG, more = {}) {
    const subscriptions = new Map([[ this.topic, new FilterExpression(expression, type) ]]);
    const options = { consumerGroup: this.group, subscriptions, awaitDuration: AWAIT_MS, ...more };
    return this.start(new SimpleConsumer({ ...this.common, ...options }));
  }

  /** A push consumer, with the bodies and attempts that it got. `isDone` says whether a message was consumed. */
  async push(isDone = () => true) {
    const got = [];
    const messageListener = {
      async consume(message) {
        got.push([ message.body.toString(), message.deliveryAttempt ]);
        return isDone(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
      },
    };
    const subscriptions = new Map([[ this.topic, FilterExpression.SUB_ALL ]]);
    const options = { consumerGroup: this.group, subscriptions, messageListener };
    await this.start(new PushConsumer({ ...this.common, ...options }));
    return got;
  }

  /** A consumer of lite topics, with the lite topics, bodies and attempts that it got. */
  async lite() {
    const got = [];
    const messageListener = {
      async consume(message) {
        got.push([ message.liteTopic, message.body.toString(), message.deliveryAttempt ]);
        return ConsumeResult.SUCCESS;
      },
    };
    const options = { consumerGroup: this.group, bindTopic: this.topic, messageListener };
    return [ await this.start(new LitePushConsumerImpl({ ...this.common, ...options })), got ];
  }

  message(number, more = {}) {
    return {
      topic: this.topic, body: Buffer.from(String(number)), keys: [ `k${number}` ],
      properties: new Map([[ 'number', String(number) ]]), ...more,
    };
  }

  async send(producer, count, more = () => ({})) {
    const sent = [];
    for (let number = 0; number < count; number++) sent.push(await producer.send(this.message(number, more(number))));
    return sent;
  }

  /** Receive what there is; nothing is an empty list. */
  async receive(consumer, most = 32, hiddenMs = HIDDEN_MS) {
    return await consumer.receive(most, hiddenMs) || [];
  }

  /** Receive and acknowledge messages until there are so many. */
  async take(consumer, count, most = 32) {
    const got = [];
    const end = Date.now() + PATIENCE_MS;
    while (got.length < count && Date.now() < end) {
      for (const message of await this.receive(consumer, most)) {
        await consumer.ack(message);
        got.push(message);
      }
    }
    return got;
  }

  async next(consumer, hiddenMs = HIDDEN_MS) {
    const end = Date.now() + PATIENCE_MS;
    while (Date.now() < end) {
      const [ message ] = await this.receive(consumer, 1, hiddenMs);
      if (message) return message;
    }
    throw new Error(`no message within ${PATIENCE_MS} ms`);
  }

  async close() {
    for (const client of this.clients) await client.shutdown();
  }
}

async function sendAndReceive(self) {
  const producer = await self.producer();
  const consumer = await self.consumer();
  const sent = await self.send(producer, 20, () => ({ tag: 'tag' }));
  const got = await self.take(consumer, 20);
  assert.deepStrictEqual(bodies(got).sort(byNumber), numbers(0, 20));
  assert.deepStrictEqual(got.map(each => each.messageId).sort(), sent.map(each => each.messageId).sort());
  for (const message of got) {
    const number = message.body.toString();
    assert(!message.corrupted, 'a body is not what its digest says');
    assert.deepStrictEqual(message.keys, [ `k${number}` ]);
    assert.strictEqual(message.properties.get('number'), number);
    assert.strictEqual(message.tag, 'tag');
    assert.strictEqual(message.deliveryAttempt, 1);
  }
  assert.deepStrictEqual(await self.receive(consumer), []);
}

async function transaction(self, end) {
  const checker = { async check() { return TransactionResolution.COMMIT; } };
  const producer = await self.producer({ checker });
  const consumer = await self.consumer();
  const begun = producer.beginTransaction();
  const sent = await producer.send(self.message(0), begun);
  assert(sent.transactionId, 'a transaction without an id');
  await end(begun);
  return consumer;
}

const cases = {
  async send(self) {
    const producer = await self.producer();
    const sent = await self.send(producer, 20);
    assert.strictEqual(new Set(sent.map(each => each.messageId)).size, 20);
  },

  // Fifty at a time, as fast as it goes.
  async burst(self) {
    const producer = await self.producer();
    const ids = new Set();
    for (let first = 0; first < 3000; first += 50) {
      const sending = numbers(first, first + 50).map(number => producer.send(self.message(number)));
      for (const sent of await Promise.all(sending)) ids.add(sent.messageId);
    }
    assert.strictEqual(ids.size, 3000);
  },

  simple: sendAndReceive,

  async tls(self) {
    self.common.sslEnabled = true;
    await sendAndReceive(self);
  },

  async unknown(self) {
    const producer = await self.producer();
    const message = { ...self.message(0), topic: `${self.topic}-unknown` };
    await assert.rejects(producer.send(message), /40402|TOPIC_NOT_FOUND|NotFound/);
  },

  async large(self) {
    const producer = await self.producer();
    const consumer = await self.consumer();
    const body = require('crypto').randomBytes(3 << 20);
    await producer.send(self.message(0, { body }));
    const [ message ] = await self.take(consumer, 1);
    assert(message && message.body.equals(body) && !message.corrupted, 'not the body that was sent');
  },

  async tags(self) {
    const producer = await self.producer();
    const consumer = await self.consumer('A || C');
    await self.send(producer, 30, number => ({ tag: 'ABC'[number % 3] }));
    const got = await self.take(consumer, 20);
    assert.deepStrictEqual(bodies(got).sort(byNumber), numbers(0, 30).filter(number => number % 3 !== 1));
    assert.deepStrictEqual(await self.receive(consumer), []);
  },

  async sql(self) {
    const producer = await self.producer();
    const consumer = await self.consumer('number BETWEEN 3 AND 6 OR TAGS IN (\'x\')', FilterType.SQL);
    await self.send(producer, 10, number => ({ tag: number === 9 ? 'x' : 'y' }));
    const got = await self.take(consumer, 5);
    assert.deepStrictEqual(bodies(got).sort(byNumber), [ '3', '4', '5', '6', '9' ]);
    assert.deepStrictEqual(await self.receive(consumer), []);
  },

  async fifo(self) {
    const producer = await self.producer();
    const consumer = await self.consumer();
    await self.send(producer, 8, () => ({ messageGroup: 'one' }));
    const got = await self.take(consumer, 8, 1);
    assert.deepStrictEqual(bodies(got), numbers(0, 8));
    assert(got.every(each => each.messageGroup === 'one'), 'a message without its group');
  },

  async priority(self) {
    const producer = await self.producer();
    const consumer = await self.consumer();
    // This client takes priority 0 for none.
    for (const number of [ 1, 3, 9, 2, 3 ]) {
      await producer.send(self.message(number, { priority: number }));
    }
    // The topic has four queues; the last one has all priorities from 3 on.
    const got = await self.take(consumer, 5, 1);
    assert.deepStrictEqual(bodies(got), [ '3', '9', '3', '2', '1' ]);
    assert.deepStrictEqual(got.map(each => each.priority), [ 3, 9, 3, 2, 1 ]);
    await assert.rejects(async () => await producer.send(self.message(0)), /not match/);
  },

  async delay(self) {
    const producer = await self.producer();
    const consumer = await self.consumer();
    const began = Date.now();
    await producer.send(self.message(0, { deliveryTimestamp: new Date(began + 4000) }));
    const [ message ] = await self.take(consumer, 1);
    const took = Date.now() - began;
    assert(message, 'it did not come');
    assert(took > 2900 && took < 12000, `it came after ${took} ms`);
  },

  async recall(self) {
    const producer = await self.producer();
    const consumer = await self.consumer();
    const deliveryTimestamp = new Date(Date.now() + 6000);
    const [ first ] = await self.send(producer, 2, () => ({ deliveryTimestamp }));
    const recalled = await producer.recallMessage(self.topic, first.recallHandle);
    assert.strictEqual(recalled.messageId, first.messageId);
    assert.deepStrictEqual(bodies(await self.take(consumer, 1)), [ '1' ]);
    assert.deepStrictEqual(await self.receive(consumer), []);
  },

  async commit(self) {
    const consumer = await transaction(self, begun => begun.commit());
    assert.deepStrictEqual(bodies(await self.take(consumer, 1)), [ '0' ]);
    assert.deepStrictEqual(await self.receive(consumer), []);
  },

  async rollback(self) {
    const consumer = await transaction(self, begun => begun.rollback());
    assert.deepStrictEqual(await self.receive(consumer), []);
  },

  async orphan(self) {
    const consumer = await transaction(self, async () => {});
    assert.deepStrictEqual(bodies(await self.take(consumer, 1)), [ '0' ]);
    assert.deepStrictEqual(await self.receive(consumer), []);
  },

  async nack(self) {
    const producer = await self.producer();
    const consumer = await self.consumer();
    await self.send(producer, 1);
    const first = await self.next(consumer, 60000);
    const began = Date.now();
    await consumer.changeInvisibleDuration(first, 3000);
    const second = await self.next(consumer);
    const took = Date.now() - began;
    assert(took > 2000 && took < 15000, `it came again after ${took} ms`);
    assert.deepStrictEqual([ first.deliveryAttempt, second.deliveryAttempt ], [ 1, 2 ]);
    assert.strictEqual(second.messageId, first.messageId);
    await consumer.ack(second);
  },

  async redelivery(self) {
    const producer = await self.producer();
    const consumer = await self.consumer();
    await self.send(producer, 1);
    const attempts = [];
    for (let count = 0; count < 3; count++) attempts.push((await self.next(consumer, 10000)).deliveryAttempt);
    assert.deepStrictEqual(attempts, [ 1, 2, 3 ]);
  },

  async push(self) {
    const producer = await self.producer();
    const got = await self.push();
    await self.send(producer, 20);
    await until(() => got.length >= 20, 'twenty messages');
    assert.deepStrictEqual(got.map(([ body ]) => body).sort(byNumber), numbers(0, 20));
    const began = Date.now();
    await producer.send(self.message(20));
    await until(() => got.length > 20, 'message');
    assert(Date.now() - began < 2000, 'a long poll was not answered on arrival');
  },

  async push_retry(self) {
    const producer = await self.producer();
    const got = await self.push(message => message.deliveryAttempt > 1);
    await self.send(producer, 1);
    await until(() => got.length >= 2, 'second attempt');
    await pause(3000);
    assert.deepStrictEqual(got, [[ '0', 1 ], [ '0', 2 ]]);
  },

  async push_fifo(self) {
    const producer = await self.producer();
    const got = await self.push(message => message.body.toString() !== '1' || message.deliveryAttempt > 1);
    await self.send(producer, 4, () => ({ messageGroup: 'one' }));
    // Of the policy for retries that groups have by default, this client knows nothing: it gives up after one attempt.
    await until(() => got.length >= 4, 'fourth attempt');
    assert.deepStrictEqual(got, [[ '0', 1 ], [ '1', 1 ], [ '2', 1 ], [ '3', 1 ]]);
    assert.deepStrictEqual(bodies(await self.take(await self.letters(), 1)), [ '1' ]);
  },

  async lite(self) {
    const producer = await self.producer();
    const [ consumer, got ] = await self.lite();
    await consumer.subscribeLite('one');
    await consumer.subscribeLite('two');
    await self.send(producer, 30, number => ({ liteTopic: [ 'one', 'two', 'three' ][number % 3] }));
    await until(() => got.length >= 20, 'twenty messages');
    await pause(1000);
    for (const [ at, name ] of [ 'one', 'two' ].entries()) {
      const wanted = numbers(0, 30).filter(number => number % 3 === at).map(number => [ name, number, 1 ]);
      assert.deepStrictEqual(got.filter(([ each ]) => each === name), wanted);
    }
    assert.strictEqual(got.length, 20);
    await consumer.unsubscribeLite('one');
    await producer.send(self.message(30, { liteTopic: 'one' }));
    await producer.send(self.message(31, { liteTopic: 'two' }));
    await until(() => got.length > 20, 'message');
    await pause(1000);
    assert.deepStrictEqual(got.slice(20), [[ 'two', '31', 1 ]]);
  },

  // Of the group, one client only is subscribed to a lite topic; it may have two. The one before is told, but this
  // client takes no notice.
  async lite_exclusive(self) {
    const producer = await self.producer();
    const [ first, one ] = await self.lite();
    await first.subscribeLite('a');
    await producer.send(self.message(0, { liteTopic: 'a' }));
    await until(() => one.length === 1, 'message');
    const [ second, other ] = await self.lite();
    await second.subscribeLite('a');
    await producer.send(self.message(1, { liteTopic: 'a' }));
    await until(() => other.length === 1, 'message');
    assert.deepStrictEqual([ one, other ], [[[ 'a', '0', 1 ]], [[ 'a', '1', 1 ]]]);
    await second.subscribeLite('b');
    await assert.rejects(second.subscribeLite('c'), /quota/i);
  },

  // The group's messages are dead after their second attempt.
  async dead(self) {
    const producer = await self.producer();
    const got = await self.push(() => false);
    const [ sent ] = await self.send(producer, 1);
    await until(() => got.length >= 2, 'second attempt');
    await pause(12000);
    assert.deepStrictEqual(got, [[ '0', 1 ], [ '0', 2 ]]);
    const [ message ] = await self.take(await self.letters(), 1);
    assert(message, 'no dead letter');
    assert.deepStrictEqual([ message.body.toString(), message.messageId ], [ '0', sent.messageId ]);
  },
};

async function main() {
  for (const name of wanted) {
    const self = new Case(name);
    try {
      if (!cases[name]) throw new Error('is no case');
      await cases[name](self);
      console.log(`case ${name} passed`);
    } catch (error) {
      console.log(error);
      console.log(`case ${name} failed ${error.message.split('\n').join(' ')}`);
    }
    try {
      await self.close();
    } catch (error) {
      console.log('close:', error.message);
    }
  }
  process.exit(0);
}

main();
