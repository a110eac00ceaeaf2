-- flight - equal requests at several gateways share one upstream call: who asks first leads, the others follow. Bytes go from the leader to
-- the gateways that follow it, and to no others, through a stream of each gateway, its inbox. Nothing here decides what an answer is.
--
-- Keys behind the tag: {ns}:flight:<exact key>  hash    token, inbox of the leader, until (Unix ms): led by it until then
--                      {ns}:flight:gateways    zset    inboxes of gateways by their last beat (Unix ms), forgotten after INBOX_TTL_MS
--                      {ns}:flight:in:<gateway> stream  f token, k kind (gateway/flight_internal.h), o offset, d bytes; INBOX_TTL_MS after the last
--
-- deja_flight_begin KEYS {ns}:flight:<exact key>  ARGV token inbox lease_ms
--     Reply: empty when the caller leads; else token and inbox of the leader, which has been told that inbox follows.
-- deja_flight_hold KEYS {ns}:flight:<exact key>  ARGV token lease_ms
--     The leader is at work for lease_ms more; 0: others need not follow it any more. Reply: 1, or 0 when another one leads.
-- deja_flight_here KEYS {ns}:flight:gateways  ARGV inbox fresh_ms
--     A gateway's beat; one that was not there before tells the others (kind n). Reply: how many others have beaten within fresh_ms, and
--     whether this one had been there.
-- deja_flight_say KEYS inbox  ARGV token kind offset bytes
--     Reply: 1.

do -- the names end with the file: a chunk has room for 200

do
local INBOX_ITEMS_MAX, INBOX_TTL_MS, LEASE_MAX_MS, GATEWAYS_MAX = 2048, 60000, 600000, 1000
local NO_FLIGHT = '00000000000000000000000000000000'

local function say(inbox, token, kind, offset, bytes)
  redis.call('XADD', inbox, 'MAXLEN', INBOX_ITEMS_MAX, '*', 'f', token, 'k', kind, 'o', offset, 'd', bytes)
  redis.call('PEXPIRE', inbox, INBOX_TTL_MS)
  return 1
end

local function hold(key, token, inbox, lease_ms)
  redis.call('HSET', key, 'token', token, 'inbox', inbox, 'until', string.format('%.0f', now_ms() + lease_ms))
  redis.call('PEXPIRE', key, lease_ms)
end

local function deja_flight_begin(keys, args)
  local lease_ms = number(args[3], 1, LEASE_MAX_MS)
  if #keys ~= 1 or #args ~= 3 or not lease_ms then return bad('deja_flight_begin needs 1 key and token inbox lease_ms') end
  local held = redis.call('HMGET', keys[1], 'token', 'inbox', 'until')
  if held[1] and held[2] and held[1] ~= args[1] and (tonumber(held[3]) or 0) > now_ms() then
    say(held[2], held[1], 'j', '0', args[2])
    return {held[1], held[2]}
  end
  hold(keys[1], args[1], args[2], lease_ms)
  return {}
end

local function deja_flight_hold(keys, args)
  local lease_ms = number(args[2], 0, LEASE_MAX_MS)
  if #keys ~= 1 or #args ~= 2 or not lease_ms then return bad('deja_flight_hold needs 1 key and token lease_ms') end
  local held = redis.call('HMGET', keys[1], 'token', 'inbox')
  if held[1] ~= args[1] then return 0 end
  if lease_ms == 0 then redis.call('DEL', keys[1]) else hold(keys[1], args[1], held[2], lease_ms) end
  return 1
end

local function deja_flight_here(keys, args)
  local fresh_ms = number(args[2], 1, INBOX_TTL_MS)
  if #keys ~= 1 or #args ~= 2 or not fresh_ms then return bad('deja_flight_here needs 1 key and inbox fresh_ms') end
  local now = now_ms()
  redis.call('ZREMRANGEBYSCORE', keys[1], '-inf', string.format('(%.0f', now - fresh_ms))
  local new = redis.call('ZADD', keys[1], string.format('%.0f', now), args[1])
  redis.call('PEXPIRE', keys[1], INBOX_TTL_MS)
  local all = redis.call('ZRANGE', keys[1], 0, GATEWAYS_MAX)
  for _, other in ipairs(all) do
    if new == 1 and other ~= args[1] then say(other, NO_FLIGHT, 'n', '0', args[1]) end
  end
  return {#all - 1, 1 - new}
end

local function deja_flight_say(keys, args)
  if #keys ~= 1 or #args ~= 4 or not number(args[3], 0, 2 ^ 53) then return bad('deja_flight_say needs 1 key and token kind offset bytes') end
  return say(keys[1], args[1], args[2], args[3], args[4])
end

redis.register_function('deja_flight_begin', deja_flight_begin)
redis.register_function('deja_flight_hold', deja_flight_hold)
redis.register_function('deja_flight_here', deja_flight_here)
redis.register_function('deja_flight_say', deja_flight_say)

end
end
