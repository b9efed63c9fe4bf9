// A login with KafkaJS, one record written and read: FILE with the login.
// What its fields are is written in tests/suites/mechanism_clients.py.
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const LIMIT_MS = 20000
const login = JSON.parse(fs.readFileSync(process.argv[2]))
const { mechanism, username, password } = login

const sasl = {
  mTLS: () => undefined,
  OAUTHBEARER: () => ({ mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: login.token }) }),
}[mechanism] || (() => ({ mechanism: mechanism.toLowerCase(), username, password }))

const ssl = { ca: [fs.readFileSync(login.authority)] }
if (mechanism === 'mTLS') {
  ssl.cert = fs.readFileSync(login.certificate)
  ssl.key = fs.readFileSync(login.key)
}

const run = async () => {
  const kafka = new Kafka({
    brokers: [login.bootstrap], ssl, sasl: sasl(), logLevel: logLevel.NOTHING, retry: { retries: 2 },
  })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: login.topic, messages: [{ value: login.value }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: login.group })
  await consumer.connect()
  await consumer.subscribe({ topics: [login.topic], fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    setTimeout(() => reject(new Error('the record did not come')), LIMIT_MS)
    consumer.run({
      eachMessage: async ({ message }) => {
        if (message.value.toString() === login.value) resolve()
      },
    }).catch(reject)
  })
  console.log(login.value)
  await consumer.disconnect()
}

run().then(() => process.exit(0), error => {
  console.error(error)
  process.exit(1)
})
