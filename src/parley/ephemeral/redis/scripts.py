"""The scripts that Redis runs atomically, with its own clock. Callers pass every key that a script touches.

    nodes               hash     node_id → "<lease end> <tag> <announcement as JSON>"
    devices:{user_id}   hash     "<device_id>\\x1f<node_id>" → "<connected at> <lease end>", for one lease
    presence:{user_id}  string   {"status": "online", "last_active": …}, for one lease
    presence_leases     zset     user_id → lease end, of everyone who was published as online
    tenures             hash     tenure → "<lease end> <run id of the server that it began on>"
    interest:{subject}  hash     tenure → "", until no node has registered it for `INTEREST_SECONDS`
    is_suspected        string   "1", while entries may come late
    lease:{name}        string   holder, for one lease
    job_records         hash     key of a record → "<end> <tag> <record as JSON>"
    rate:{name}:{key}   string   "<level> <updated at>", until it would be full
    presence_channel    channel  [{"user_id": …, "status": "online" | "offline", "last_active": …}, …]
    signals_channel     channel  tag, [publisher, number, time, [signal, …]] as MessagePack; not by scripts

Times are milliseconds since 1970; only "connected at" has microseconds, so that no two are the same.
"""

from __future__ import annotations

NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""

ANNOUNCE = f"""{NOW}
local node_id, lease, node = ARGV[1], ARGV[2], ARGV[3]
redis.call('HSET', KEYS[1], node_id, (now + lease) .. ' ' .. node)
redis.call('PEXPIRE', KEYS[1], lease)
"""

ALIVE = f"""{NOW}
local alive = {{}}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local ends, node = string.match(all[i + 1], '^(%d+) (.*)$')
  if ends and tonumber(ends) > now then
    alive[#alive + 1] = node
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return alive
"""

RECORD = f"""{NOW}
-- ARGV: how long the longest is kept, then key, for how long, and value of each record.
for i = 2, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], (now + ARGV[i + 1]) .. ' ' .. ARGV[i + 2])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
"""Read by the script `ALIVE`, which drops what has ended."""

HOLD = """
local holder, lease = ARGV[1], ARGV[2]
local held = redis.call('GET', KEYS[1])
if held and held ~= holder then
  return 0
end
redis.call('SET', KEYS[1], holder, 'PX', lease)
return 1
"""

LET_GO = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
"""

CHANGES = """
local changes = {}
local function add_change(user_id, status, last_active)
  changes[#changes + 1] = {user_id = user_id, status = status, last_active = last_active}
end
"""

PUBLISH = """
local published = '[]'
if #changes > 0 then
  published = cjson.encode(changes)
  redis.call('PUBLISH', channel, published)
end
"""
"""One message for all changes: every node reads it, and a message costs a reader more than its content."""

EXPIRED = """
local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, many)
"""
"""People whose leases have expired and who are not yet published as offline."""

PRUNE = """
local function prune(devices)
  -- Removes expired leases. Returns when the last of the others expires, 0 if there is none.
  local last = 0
  local all = redis.call('HGETALL', devices)
  for i = 1, #all, 2 do
    local ends = tonumber(string.match(all[i + 1], '%d+$'))
    if ends > now then
      last = math.max(last, ends)
    else
      redis.call('HDEL', devices, all[i])
    end
  end
  return last
end
"""

LEASE = f"""{NOW}{PRUNE}
-- KEYS: presence_leases, then devices and presence of each lease's person.
-- ARGV: channel, how many to return, node, lease, whether new, then person and device of each lease.
local channel, many, node, lease, is_new = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5] == '1'
{CHANGES}
local ends = now + lease
local instant = string.format('%.0f', clock[1] * 1000000 + clock[2])
local present = cjson.encode({{status = 'online', last_active = now}})
for i = 2, #KEYS, 2 do
  local devices, presence, user_id, device_id = KEYS[i], KEYS[i + 1], ARGV[i + 4], ARGV[i + 5]
  local field = device_id .. '\\31' .. node
  local since = instant
  if is_new then
    prune(devices)
  else
    local held = redis.call('HGET', devices, field)
    since = held and string.match(held, '^%d+') or instant
  end
  redis.call('HSET', devices, field, since .. ' ' .. ends)
  redis.call('PEXPIRE', devices, lease)
  redis.call('SET', presence, present, 'PX', lease)
  if redis.call('ZADD', KEYS[1], ends, user_id) == 1 then add_change(user_id, 'online', now) end
end
{PUBLISH}{EXPIRED}
return expired
"""

RELEASE = f"""{NOW}{PRUNE}
-- KEYS as above; ARGV: channel, node, then person and device of each lease. Returns what it published.
local channel, node = ARGV[1], ARGV[2]
{CHANGES}
for i = 2, #KEYS, 2 do
  local devices, presence, user_id, device_id = KEYS[i], KEYS[i + 1], ARGV[i + 1], ARGV[i + 2]
  if redis.call('HDEL', devices, device_id .. '\\31' .. node) == 1 then
    local last = prune(devices)
    if last > 0 then
      redis.call('ZADD', KEYS[1], 'XX', last, user_id)
      redis.call('PEXPIREAT', devices, last)
      redis.call('PEXPIREAT', presence, last)
    else
      redis.call('DEL', devices, presence)
      if redis.call('ZREM', KEYS[1], user_id) == 1 then add_change(user_id, 'offline', now) end
    end
  end
end
{PUBLISH}
return published
"""

END = f"""{NOW}
-- KEYS as above; ARGV: channel, how many to return, lease, then each person. Returns also what it published.
local channel, many, lease = ARGV[1], tonumber(ARGV[2]), ARGV[3]
{CHANGES}
for i = 2, #KEYS, 2 do
  local user_id = ARGV[i / 2 + 3]
  local ends = tonumber(redis.call('ZSCORE', KEYS[1], user_id) or now + 1)
  if ends <= now then
    redis.call('ZREM', KEYS[1], user_id)
    redis.call('DEL', KEYS[i], KEYS[i + 1])
    add_change(user_id, 'offline', ends - lease)
  end
end
{PUBLISH}{EXPIRED}
return {{published, expired}}
"""

WHEREABOUTS = f"""{NOW}
-- For each person a list of device, node and connected at, one after the other.
local found = {{}}
for i, devices in ipairs(KEYS) do
  local devices_of = {{}}
  local all = redis.call('HGETALL', devices)
  for j = 1, #all, 2 do
    local since, ends = string.match(all[j + 1], '^(%d+) (%d+)$')
    if tonumber(ends) > now then
      local device_id, node = string.match(all[j], '^(.*)\\31(.*)$')
      devices_of[#devices_of + 1] = device_id
      devices_of[#devices_of + 1] = node
      devices_of[#devices_of + 1] = since
    end
  end
  found[i] = devices_of
end
return found
"""

LEVEL = """
local function level_of(key, per_second, burst)
  local level, at = string.match(redis.call('GET', key) or '', '^(%S+) (%S+)$')
  if not level then return burst end
  return math.min(burst, level + math.max(0, now - at) / 1000 * per_second)
end
local function keep(key, level, per_second, burst)
  if level >= burst then
    redis.call('DEL', key)
  else
    local full_in = math.ceil((burst - level) / per_second * 1000)
    redis.call('SET', key, string.format('%.6f %.0f', level, now), 'PX', full_in)
  end
end
"""

TAKE = f"""{NOW}{LEVEL}
-- ARGV: the rounding, then cost, per second and burst of each key. Returns the milliseconds to wait.
local waits = {{}}
for i, key in ipairs(KEYS) do
  local cost, per_second, burst = tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local level = level_of(key, per_second, burst)
  local lacking = cost - level - ARGV[1]
  if lacking > 0 and cost > 0 then
    waits[i] = math.ceil(lacking / per_second * 1000)
  else
    waits[i] = 0
    keep(key, math.min(burst, level - cost), per_second, burst)
  end
end
return waits
"""

REPORT = f"""{NOW}{LEVEL}
-- ARGV: per second, burst, then what was used of each key. Returns what is left of each, as text.
local per_second, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local left = {{}}
for i, key in ipairs(KEYS) do
  local level = math.min(burst, level_of(key, per_second, burst) - ARGV[i + 2])
  keep(key, level, per_second, burst)
  left[i] = string.format('%.6f', level)
end
return left
"""

SERVER = """
local function server()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
end
"""
"""The run id of this server: another one after a restart, and after a failover to a replica."""

LASTS = """
local function lasts(tenure)
  local ends = string.match(redis.call('HGET', KEYS[1], tenure) or '', '^(%d+) ')
  return ends and tonumber(ends) > now
end
"""
"""KEYS[1] is always the hash of tenures."""

BEGIN = f"""{NOW}{SERVER}
redis.call('HSET', KEYS[1], ARGV[1], (now + ARGV[2]) .. ' ' .. server())
for i, tenure in ipairs(redis.call('HKEYS', KEYS[1])) do
  local ends = string.match(redis.call('HGET', KEYS[1], tenure), '^(%d+) ')
  if tonumber(ends or 0) <= now then redis.call('HDEL', KEYS[1], tenure) end
end
"""

RENEW = f"""{NOW}{SERVER}
-- A server that was started since may have lost what it had not written, or not copied to its replica.
local ends, began_on = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) (%w*)$')
if not ends or tonumber(ends) <= now or began_on ~= server() then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], (now + ARGV[2]) .. ' ' .. began_on)
return 1
"""

REGISTER = f"""{NOW}{LASTS}
-- Returns the numbers of the subjects that are new; nothing at all when the tenure has ended.
local tenure, keep = ARGV[1], ARGV[2]
if not lasts(tenure) then return {{-1}} end
local added = {{}}
for i = 2, #KEYS do
  if redis.call('HSET', KEYS[i], tenure, '') == 1 then added[#added + 1] = i - 2 end
  redis.call('PEXPIRE', KEYS[i], keep)
end
return added
"""

RELEASE_INTERESTS = """
for i, key in ipairs(KEYS) do redis.call('HDEL', key, ARGV[1]) end
"""

TENURES = f"""{NOW}{LASTS}
-- For each subject a list of tenures; what was registered under ended ones is removed.
local found, known = {{}}, {{}}
for i = 2, #KEYS do
  local some = {{}}
  for _, tenure in ipairs(redis.call('HKEYS', KEYS[i])) do
    if known[tenure] == nil then known[tenure] = lasts(tenure) and true or false end
    if known[tenure] then
      some[#some + 1] = tenure
    else
      redis.call('HDEL', KEYS[i], tenure)
    end
  end
  found[i - 1] = some
end
return found
"""
