// A peer of functions: what somebody would write without a platform. Plain node:http, one process, the words of stdin
// counted in JavaScript as the C example counts them; JSON in, JSON out. Started with its port as the only argument.
import { createServer } from 'node:http'

const server = createServer((req, res) => {
  const chunks: Buffer[] = []
  req.on('data', (chunk: Buffer) => chunks.push(chunk))
  req.on('end', () => {
    const { stdin } = JSON.parse(Buffer.concat(chunks).toString()) as { stdin: string }
    const body = JSON.stringify({ ok: true, exitCode: 0, stdout: count(Buffer.from(stdin)) })
    res.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    })
    res.end(body)
  })
})
server.listen(Number(process.argv[2]), '127.0.0.1')

function count(bytes: Buffer): string {
  let [lines, words] = [0, 0]
  let inWord = false
  for (const byte of bytes) {
    if (byte === 10) lines++
    if (byte === 32 || (byte >= 9 && byte <= 13)) {
      if (inWord) words++
      inWord = false
    } else if (byte > 32 && byte < 127) inWord = true
  }
  if (inWord) words++
  return `${[lines, words, bytes.length].map((n) => String(n).padStart(7)).join(' ')}\n`
}
