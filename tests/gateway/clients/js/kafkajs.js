// A group member made of kafkajs: orders come as JSON lines, events go out as JSON lines.
const { Kafka, logLevel } = require('kafkajs');

const config = JSON.parse(process.argv[2]);
const say = (event, details) => console.log(JSON.stringify({ event, ...details }));
const error = (what, failure) => console.error(`kafkajs member ERROR ${what}: ${failure.message}`);

async function main() {
  const logCreator = () => ({ level, log }) => console.error(`kafkajs level ${level} ${log.message} ${log.error || ''}`);
  const kafka = new Kafka({ clientId: config.name, brokers: [config.address], logLevel: logLevel.WARN, logCreator });
  const consumer = kafka.consumer({
    groupId: config.group, sessionTimeout: config.session_ms, heartbeatInterval: config.heartbeat_ms,
  });
  const admin = kafka.admin();
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const partitions = Object.entries(payload.memberAssignment).flatMap(([topic, all]) => all.map((n) => [topic, n]));
    say('assigned', { partitions: partitions.sort() });
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => error('crash', payload.error));
  await admin.connect();
  await consumer.connect();
  await consumer.subscribe({ topics: config.topics, fromBeginning: true });
  await consumer.run({ autoCommit: false, eachMessage: async () => {} });
  require('readline').createInterface({ input: process.stdin }).on('line', (line) => obey(JSON.parse(line), consumer, admin));
}

async function obey(order, consumer, admin) {
  try {
    if (order.do === 'close') {
      await consumer.disconnect();
      await admin.disconnect();
      say('closed');
      process.exit(0);
    }
    const [topic, partition] = order.place;
    if (order.do === 'commit') {
      try {
        await consumer.commitOffsets([{ topic, partition, offset: String(order.offset) }]);
        say('committed', { place: order.place, offset: order.offset });
      } catch (refused) {
        say('refused', { error: refused.message });
      }
    } else {
      const [found] = await admin.fetchOffsets({ groupId: config.group, topics: [topic] });
      const { offset } = found.partitions.find((p) => p.partition === partition);
      say('found', { place: order.place, offset: Number(offset) });
    }
  } catch (failure) {
    error(order.do, failure);
  }
}

main().catch((failure) => { error('main', failure); process.exit(1); });
