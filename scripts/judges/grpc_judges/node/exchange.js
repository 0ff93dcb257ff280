// Sends messages for clients of another protocol, or takes theirs, by RocketMQ 5's Node.js client:
// node exchange.js send ENDPOINT TOPIC COUNT, node exchange.js take ENDPOINT GROUP TOPIC=COUNT...
'use strict';

const { FilterExpression, Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const PATIENCE_MS = 40000;
const [ action, endpoints, name, ...words ] = process.argv.slice(2);
const silent = { info() {}, warn() {}, debug() {}, error(...said) { console.log('client:', ...said); } };
const common = { endpoints, namespace: '', logger: silent };

function message(topic, number, more = {}) {
  return {
    topic, body: Buffer.from(`body ${number}`), keys: [ `k${number}` ], tag: 'tag',
    properties: new Map([[ 'number', String(number) ]]), ...more,
  };
}

async function send(topic, count) {
  const late = `${topic}-late`;
  const producer = new Producer({ ...common, topics: [ topic, late ] });
  await producer.startup();
  for (let number = 0; number < count; number++) await producer.send(message(topic, number));
  await producer.send(message(late, 0, { deliveryTimestamp: new Date(Date.now() + 5000) }));
  console.log('sent');
  await producer.shutdown();
}

async function take(group, topic, count) {
  const subscriptions = new Map([[ topic, FilterExpression.SUB_ALL ]]);
  const consumer = new SimpleConsumer({
    ...common, consumerGroup: `${group}-${topic}`, subscriptions, awaitDuration: 5000,
  });
  await consumer.startup();
  for (const end = Date.now() + PATIENCE_MS; count > 0 && Date.now() < end;) {
    for (const each of await consumer.receive(32, 30000) || []) {
      await consumer.ack(each);
      const told = [ 'got', topic, each.body.toString(), each.keys.join(' '), each.tag, each.properties.get('number') ];
      console.log(told.join('\t'));
      count--;
    }
  }
  await consumer.shutdown();
}

async function main() {
  if (action === 'send') await send(name, Number(words[0]));
  else for (const each of words) await take(name, each.split('=')[0], Number(each.split('=')[1]));
  process.exit(0);
}

main().catch(error => {
  console.log(error);
  process.exit(1);
});
