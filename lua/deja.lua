#!lua name=deja
-- deja - changes to the cache that must be seen whole or not at all, as Redis Functions. All keys of a call share one hash tag
-- ({namespace}), so that they live on one node of a cluster. Every change is one item of the log stream, which each gateway tails.
--
-- deja_put KEYS entry log partition partitions  ARGV id expires_unix_s ttl_s log_items_max source partition_hex [field value]...
--     Replaces the entry. partition_hex "" = exact look-ups only (KEYS 3 and 4 untouched). Reply: OK.
--     Errors: ERR deja_put ... (says which argument is wrong, nothing has changed).
-- deja_del KEYS entry log  ARGV id prefix source log_items_max
--     Deletes the entry; prefix .. "p:" .. partition is the set it is taken out of. Reply: 1, or 0 when there was none.
-- deja_epoch KEYS log  ARGV source log_items_max
--     Tells every gateway to forget what it holds in process. Reply: OK.

local function number(text, min, max)
  local n = tonumber(text)
  if not n or n ~= math.floor(n) or n < min or n > max then return nil end
  return n
end

local function bad(what)
  return redis.error_reply('ERR ' .. what)
end

local function deja_put(keys, args)
  if #keys ~= 4 then return bad('deja_put needs 4 keys: entry log partition partitions') end
  local id, expires, ttl, items, source, part = args[1], args[2], args[3], args[4], args[5], args[6]
  if #args < 8 or #args % 2 ~= 0 then return bad('deja_put: fields and values must come in pairs') end
  if not string.match(id, '^[0-9a-f]+$') or #id ~= 32 then return bad('deja_put: id must be 32 hex digits') end
  if not number(ttl, 1, 2 ^ 52) then return bad('deja_put: ttl_s must be a whole number of seconds from 1 on') end
  if not number(expires, 1, 2 ^ 52) then return bad('deja_put: expires_unix_s must be a whole number') end
  if not number(items, 100, 100000000) then return bad('deja_put: log_items_max must be from 100 to 100000000') end
  redis.call('DEL', keys[1])
  for i = 7, #args, 200 do
    redis.call('HSET', keys[1], unpack(args, i, math.min(i + 199, #args)))
  end
  redis.call('EXPIRE', keys[1], ttl)
  if part ~= '' then
    local now = redis.call('TIME')[1]
    redis.call('ZREMRANGEBYSCORE', keys[3], '-inf', '(' .. now)
    redis.call('ZADD', keys[3], expires, id)
    local last = redis.call('ZRANGE', keys[3], -1, -1, 'WITHSCORES')
    redis.call('EXPIREAT', keys[3], math.floor(tonumber(last[2])) + 60)
    redis.call('ZADD', keys[4], now, part)
    redis.call('ZREMRANGEBYRANK', keys[4], 0, -65537)
  end
  redis.call('XADD', keys[2], 'MAXLEN', '~', items, '*', 'op', 'put', 'id', id, 'part', part, 'src', source)
  return redis.status_reply('OK')
end

local function deja_del(keys, args)
  if #keys ~= 2 then return bad('deja_del needs 2 keys: entry log') end
  if #args ~= 4 then return bad('deja_del needs 4 arguments: id prefix source log_items_max') end
  if not number(args[4], 100, 100000000) then return bad('deja_del: log_items_max must be from 100 to 100000000') end
  local part = redis.call('HGET', keys[1], 'part') or ''
  local n = redis.call('DEL', keys[1])
  if part ~= '' then redis.call('ZREM', args[2] .. 'p:' .. part, args[1]) end
  -- also when nothing was there: a gateway may still hold it in process
  redis.call('XADD', keys[2], 'MAXLEN', '~', args[4], '*', 'op', 'del', 'id', args[1], 'part', part, 'src', args[3])
  return n
end

local function deja_epoch(keys, args)
  if #keys ~= 1 or #args ~= 2 then return bad('deja_epoch needs 1 key (log) and 2 arguments (source log_items_max)') end
  if not number(args[2], 100, 100000000) then return bad('deja_epoch: log_items_max must be from 100 to 100000000') end
  redis.call('XADD', keys[1], 'MAXLEN', '~', args[2], '*', 'op', 'epoch', 'id', '', 'part', '', 'src', args[1])
  return redis.status_reply('OK')
end

redis.register_function('deja_put', deja_put)
redis.register_function('deja_del', deja_del)
redis.register_function('deja_epoch', deja_epoch)
