// Sends messages for clients of another protocol, or takes theirs, by npm's client ali-ons:
// node exchange.js send NAMESERVER TOPIC COUNT, node exchange.js take NAMESERVER GROUP TOPIC=COUNT...
'use strict';

const { Consumer, Message, Producer } = require('ali-ons');

const PATIENCE_MS = 40000;
const [ action, nameSrv, name, ...words ] = process.argv.slice(2);
const logger = { info() {}, warn() {}, debug() {}, error(...said) { console.log('client:', ...said); } };
const httpclient = { request() { throw new Error('no address server is asked'); } };
const common = { httpclient, logger, nameSrv, accessKeyId: 'key', accessKeySecret: 'secret' };

const pause = ms => new Promise(done => setTimeout(done, ms));

function message(topic, number) {
  const made = new Message(topic, 'tag', `body ${number}`);
  made.keys = [ `k${number}` ];
  made.properties.number = String(number);
  return made;
}

async function send(topic, count) {
  const producer = new Producer({ ...common, producerGroup: 'exchange-producers' });
  await producer.ready();
  for (let number = 0; number < count; number++) await producer.send(message(topic, number));
  const late = message(`${topic}-late`, 0);
  // Five seconds.
  late.delayTimeLevel = 2;
  await producer.send(late);
  console.log('sent');
  await producer.close();
}

async function take(group, wanted) {
  const consumer = new Consumer({
    ...common, consumerGroup: group, rebalanceInterval: 1000, pollNameServerInteval: 1000,
  });
  consumer.on('error', error => console.log('consumer:', error.message));
  let left = 0;
  for (const each of wanted) {
    const [ topic, count ] = each.split('=');
    left += Number(count);
    consumer.subscribe(topic, '*', async got => {
      const told = [ 'got', topic, got.body.toString(), got.keys, got.tags, got.properties.number ];
      console.log(told.join('\t'));
      left--;
    });
  }
  await consumer.ready();
  for (const end = Date.now() + PATIENCE_MS; left > 0 && Date.now() < end;) await pause(50);
  await consumer.close();
}

async function main() {
  if (action === 'send') await send(name, Number(words[0]));
  else await take(name, words);
  process.exit(0);
}

main().catch(error => {
  console.log(error);
  process.exit(1);
});
