// Structured logs: one JSON object a line. Secrets are redacted by name as a last line of defence.
import pino from 'pino'

export type Logger = pino.Logger

const SECRET_NAMES = [
  'token',
  'secret',
  'password',
  'key',
  'authorization',
  'cookie',
  'stdin',
  'env',
]

export function createLogger(
  program: string,
  level: string,
  destination?: pino.DestinationStream,
): Logger {
  const paths = SECRET_NAMES.flatMap((name) => [name, `*.${name}`])
  const options: pino.LoggerOptions = {
    level,
    base: { program },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths, censor: '[redacted]' },
    formatters: { level: (label) => ({ level: label }) },
  }
  return destination ? pino(options, destination) : pino(options)
}

/** For tests and for programs that say everything through their exit. */
export const silentLogger: Logger = pino({ level: 'silent' })
