// The features of transactions with KafkaJS: FEATURE BOOTSTRAP NAME.
// What each feature must do is written in tests/suites/client_features.py, which judges the result.
const { Kafka, logLevel } = require('kafkajs')

const RECORDS = 4
const QUIET_MS = 5000
const [feature, bootstrap, name] = process.argv.slice(2)
const kafka = new Kafka({ clientId: name, brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const output = `${name}-out`
const input = `${name}-in`
const groupId = `${name}-group`

const connected = async () => {
  const producer = kafka.producer({ transactionalId: `${name}-id`, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  return producer
}

const send = (transaction, ...values) =>
  transaction.send({ topic: output, messages: values.map(value => ({ value, partition: 0 })) })

const consume = async (topic, isDone, onRecord) => {
  const consumer = kafka.consumer({ groupId, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise((resolve, reject) => {
    let last = Date.now()
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message }) => {
        last = Date.now()
        onRecord(message)
      },
    }).catch(reject)
    consumer.on(consumer.events.GROUP_JOIN, () => { last = Date.now() })
    const timer = setInterval(() => {
      if (isDone(Date.now() - last)) {
        clearInterval(timer)
        resolve()
      }
    }, 100)
  })
  return consumer
}

const features = {
  commit: async () => {
    const producer = await connected()
    for (let number = 0; number < 3; number++) {
      const transaction = await producer.transaction()
      await send(transaction, `committed-${number}`)
      await transaction.commit()
    }
    await producer.disconnect()
  },
  abort: async () => {
    const producer = await connected()
    const aborted = await producer.transaction()
    await send(aborted, 'aborted-0', 'aborted-1')
    await aborted.abort()
    const committed = await producer.transaction()
    await send(committed, 'committed-0')
    await committed.commit()
    await producer.disconnect()
  },
  fence: async () => {
    const old = await connected()
    const fenced = await old.transaction()
    await send(fenced, 'aborted-0')
    const current = await connected()
    const committed = await current.transaction()
    let refusal = null
    try {
      await fenced.commit()
    } catch (error) {
      refusal = error.type || error.name
    }
    if (refusal === null) throw new Error('the older producer could commit')
    console.log(`refused: ${refusal}`)
    await send(committed, 'committed-0')
    await committed.commit()
    await current.disconnect()
  },
  offsets: async () => {
    const values = []
    const consumer = await consume(input, () => values.length >= RECORDS, message => values.push(message.value.toString()))
    const producer = await connected()
    const committed = await producer.transaction()
    await send(committed, ...values.map(value => `copied-${value}`))
    const topics = offset => [{ topic: input, partitions: [{ partition: 0, offset }] }]
    await committed.sendOffsets({ consumerGroupId: groupId, topics: topics(String(RECORDS)) })
    await committed.commit()
    const aborted = await producer.transaction()
    await aborted.sendOffsets({ consumerGroupId: groupId, topics: topics('1') })
    await aborted.abort()
    await producer.disconnect()
    await consumer.disconnect()
  },
  read: async () => {
    const consumer = await consume(output, quietMs => quietMs > QUIET_MS, message => console.log(message.value.toString()))
    await consumer.disconnect()
  },
}

features[feature]().then(() => process.exit(0), error => {
  console.error(error)
  process.exit(1)
})
