// One port number for both pipes: UDP for QUIC, TCP for TLS.
import { AppError } from '#lib/error.ts'
import type { Listener, ListenOptions } from '#protocol/pipe.ts'
import { listenQuic } from '#protocol/quic-pipe.ts'
import { listenTls } from '#protocol/tls-pipe.ts'

export type Listening = {
  port: number
  /** Why there is no QUIC; undefined: there is. */
  quic: string | undefined
  close(): Promise<void>
}

/** A port that is free for TCP can be taken for UDP: how many to try when any will do. */
const FREE_PORT_TRIES = 10

/** Rejects UNAVAILABLE `LISTEN_FAILED`. Without QUIC on this machine it listens on TCP alone, and says why. */
export async function listen(options: ListenOptions): Promise<Listening> {
  for (let tries = 1; ; tries++) {
    const tls = await listenTls(options)
    try {
      return withQuic(tls, options)
    } catch (error) {
      await tls.close()
      const again = options.port === 0 && tries < FREE_PORT_TRIES && error instanceof AppError
      if (!again) throw error
    }
  }
}

function withQuic(tls: Listener, options: ListenOptions): Listening {
  const quic = listenQuic({ ...options, port: tls.port })
  return {
    port: tls.port,
    quic: quic.outcome === 'unavailable' ? quic.reason : undefined,
    async close() {
      await tls.close()
      if (quic.outcome === 'listening') await quic.listener.close()
    },
  }
}
