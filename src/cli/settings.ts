// What the environment says to `ccp`. Secrets come from here or from files, never from arguments (rule 9).

export type Settings = {
  apiUrl: string | undefined
  apiKey: string | undefined
  sessionToken: string | undefined
  orgId: string | undefined
  /** Nobody answers questions: CCP_HEADLESS=1, or no terminal. */
  headless: boolean
  /** May escape codes be written? */
  colour: boolean
  home: string
  /** CLUTCH_HOME: where a platform on this machine keeps its state. */
  clutchHome: string | undefined
}

/** Every variable that the program reads; the reference page is generated from it. */
export const VARIABLES = {
  CCP_API_URL: "The engine's address, such as https://clutch.example.com; CCP_URL is read as well",
  CCP_API_KEY: "An organization's API key; it wins over every other credential",
  CCP_SESSION_TOKEN: "A person's session token, for automation; it wins over `ccp auth login`",
  CCP_ORG_ID: 'The organization, by id or slug, when --org-id is not given',
  CCP_HEADLESS:
    '1: ask no question, as without a terminal; destructive commands then go ahead without one',
  NO_COLOR: 'Not empty: no colour',
  CLUTCH_HOME: 'The state folder of a platform on this machine',
} as const

type Env = Readonly<Record<string, string | undefined>>

/** An empty variable counts as unset. */
export function readSettings(env: Env, terminal: { stdin: boolean; stdout: boolean }): Settings {
  const read = (name: string): string | undefined => (env[name] === '' ? undefined : env[name])
  return {
    apiUrl: read('CCP_API_URL') ?? read('CCP_URL'),
    apiKey: read('CCP_API_KEY'),
    sessionToken: read('CCP_SESSION_TOKEN'),
    orgId: read('CCP_ORG_ID'),
    headless: isTrue(read('CCP_HEADLESS')) || !terminal.stdin || !terminal.stdout,
    colour: terminal.stdout && read('NO_COLOR') === undefined && read('TERM') !== 'dumb',
    home: read('HOME') ?? '/',
    clutchHome: read('CLUTCH_HOME'),
  }
}

const isTrue = (value: string | undefined): boolean =>
  value !== undefined && !['0', 'false', 'no'].includes(value.toLowerCase())
