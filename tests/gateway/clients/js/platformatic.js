// A group member made of @platformatic/kafka: orders come as JSON lines, events go out as JSON lines.
const { Consumer } = require('@platformatic/kafka');

const config = JSON.parse(process.argv[2]);
const say = (event, details) => console.log(JSON.stringify({ event, ...details }));
const error = (what, failure) => console.error(`platformatic member ERROR ${what}: ${failure.stack}`);

async function main() {
  const protocol = config.protocol === 'consumer'
    ? { groupProtocol: 'consumer', groupRemoteAssignor: config.strategy }
    : { sessionTimeout: config.session_ms, heartbeatInterval: config.heartbeat_ms };
  const consumer = new Consumer({
    clientId: config.name, bootstrapBrokers: [config.address], groupId: config.group, autocommit: false, ...protocol,
  });
  let said = '';
  const report = () => {
    const all = (consumer.assignments || []).flatMap(({ topic, partitions }) => partitions.map((n) => [topic, n])).sort();
    if (said !== JSON.stringify(all)) say('assigned', { partitions: all });
    said = JSON.stringify(all);
  };
  // No event tells of each assignment of KIP-848.
  setInterval(report, 50);
  const stream = await consumer.consume({ topics: config.topics, mode: 'committed', fallbackMode: 'earliest' });
  stream.on('data', () => {});
  stream.on('error', (failure) => error('stream', failure));
  require('readline').createInterface({ input: process.stdin }).on('line', (line) => obey(JSON.parse(line), consumer));
}

async function obey(order, consumer) {
  try {
    if (order.do === 'close') {
      console.error('root: closing');
      await consumer.close(true);
      say('closed');
      process.exit(0);
    }
    const [topic, partition] = order.place;
    if (order.do === 'commit') {
      try {
        await consumer.commit({ offsets: [{ topic, partition, offset: BigInt(order.offset), leaderEpoch: 0 }] });
        say('committed', { place: order.place, offset: order.offset });
      } catch (refused) {
        say('refused', { error: refused.message });
      }
    } else {
      const found = await consumer.listCommittedOffsets({ topics: [{ topic, partitions: [partition] }] });
      say('found', { place: order.place, offset: Number(found.get(topic)[partition]) });
    }
  } catch (failure) {
    error(order.do, failure);
  }
}

main().catch((failure) => { error('main', failure); process.exit(1); });
