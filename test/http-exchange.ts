// One HTTP/1.1 exchange by hand, for tests of streaming: the request is written piece by piece, the answer is read as it
// comes, with its trailers and the way it ended.
import {
  request,
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
} from 'node:http'
import { once } from 'node:events'

export type Exchange = {
  req: ClientRequest
  /** The head of the answer. */
  head: () => Promise<IncomingMessage>
  /** The next `bytes` of the answer's body; fewer when it ended. */
  read: (bytes: number) => Promise<Buffer>
  /** All that is left of the body. Rejects when it was broken off. */
  rest: () => Promise<Buffer>
  trailers: () => Promise<IncomingHttpHeaders>
}

export function exchange(
  url: string,
  { method = 'POST', headers = {} }: { method?: string; headers?: Record<string, string> } = {},
): Exchange {
  const req = request(url, { method, headers, agent: false })
  // Who has its answer does not care how the connection ends.
  req.on('error', () => undefined)
  const answered = once(req, 'response').then(([res]) => {
    const message = res as IncomingMessage
    message.on('error', () => undefined)
    message.setMaxListeners(0)
    return message
  })
  answered.catch(() => undefined)
  let held = Buffer.alloc(0)
  let reading: Promise<IncomingMessage> | undefined
  // By events: an iterator would drop what came when the body is broken off after it.
  const heard = (): Promise<IncomingMessage> =>
    (reading ??= answered.then((res) =>
      res.on('data', (piece: Buffer) => void (held = Buffer.concat([held, piece]))),
    ))
  const take = (bytes: number): Buffer => {
    const taken = held.subarray(0, bytes)
    held = held.subarray(bytes)
    return taken
  }
  const until = async (enough: () => boolean): Promise<void> => {
    const res = await heard()
    while (!enough() && !res.closed)
      await new Promise<void>((resolve) => {
        res.once('data', resolve)
        res.once('close', resolve)
      })
  }
  const read = async (bytes: number): Promise<Buffer> => {
    await until(() => held.length >= bytes)
    return take(bytes)
  }
  const rest = async (): Promise<Buffer> => {
    await until(() => false)
    const { errored } = await heard()
    if (errored) throw errored
    return take(held.length)
  }
  return {
    req,
    head: () => answered,
    read,
    rest,
    trailers: async () => (await answered).trailers as IncomingHttpHeaders,
  }
}
