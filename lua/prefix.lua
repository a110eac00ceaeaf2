-- prefix - which target was sent which beginnings of prompts, for gateways that share their targets: what one has sent somewhere, the others
-- find too, and so does one that was started anew. A block is 32 hex digits that say everything before it too (base/prefix_hash.h), a pod
-- the target's name. What is known of a pod counts while somebody says it is alive; after a gap it is another run, and its blocks are void.
--
-- Keys behind the tag {ns:model:block tokens}: {..}:kv:b:<block>  hash    pod -> number of its run, for BLOCK_TTL_S
--                                              {..}:kv:o:<pod>    zset    its blocks by time (unix s)
--                                              {..}:kv:p:<pod>    string  number of its run, while it is alive
--                                              {..}:kv:n:<pod>    string  number of its last run
--
-- deja_prefix_held KEYS {space}:kv  ARGV [block]...
--     The longest beginning of these blocks that each pod was sent. Reply: pod blocks pod blocks ...
-- deja_prefix_sent KEYS {space}:kv  ARGV pod alive_s blocks_max [block]...
--     pod was sent these blocks; of more than blocks_max the oldest are forgotten, up to 10000 at a time. Reply: how many are known of it.
-- deja_prefix_alive KEYS {space}:kv  ARGV alive_s [pod]...
--     These pods are well. Reply: OK.
-- deja_prefix_gone KEYS {space}:kv  ARGV pod
--     It was away: what it was sent is void, and whoever finds it well begins another run. Reply: OK.
-- deja_prefix_drop KEYS {space}:kv  ARGV pod [max]
--     Forgets up to max (10000) blocks of a pod. Reply: how many are left.

do -- a chunk has room for some two hundred local names; these are of nobody else

local BLOCK_TTL_S = 6 * 3600
local BLOCKS_AT_ONCE, FORGOTTEN_AT_ONCE = 4096, 10000

local function kv_of(keys, name)
  local tag, problem = space_of(keys, name)
  if not tag then return nil, problem end
  return '{' .. tag .. '}:kv:'
end

local function is_pod(text)
  return text and #text >= 1 and #text <= 64 and string.match(text, '^[%w%-_.]+$') ~= nil
end

-- The number of pod's run; a new one when nobody has said for a while that it is alive.
local function run_of(kv, pod, alive_s)
  local run = redis.call('GET', kv .. 'p:' .. pod)
  if not run then run = tostring(redis.call('INCR', kv .. 'n:' .. pod)) end
  redis.call('SET', kv .. 'p:' .. pod, run, 'EX', alive_s)
  redis.call('EXPIRE', kv .. 'n:' .. pod, BLOCK_TTL_S * 2)
  return run
end

local function forget(kv, pod, block)
  redis.call('HDEL', kv .. 'b:' .. block, pod)
end

local function deja_prefix_held(keys, args)
  local kv, problem = kv_of(keys, 'deja_prefix_held')
  if not kv then return bad(problem) end
  if #args > BLOCKS_AT_ONCE then return bad('deja_prefix_held: at most ' .. BLOCKS_AT_ONCE .. ' blocks') end
  local alive, running, out, left = {}, {}, {}, 0
  for i = 1, #args do
    local known, here, still = redis.call('HGETALL', kv .. 'b:' .. args[i]), {}, 0
    for j = 1, #known, 2 do
      local pod = known[j]
      if alive[pod] == nil then alive[pod] = redis.call('GET', kv .. 'p:' .. pod) end
      if alive[pod] == known[j + 1] and (i == 1 or running[pod]) then
        here[pod] = i
        still = still + 1
      end
    end
    for pod, n in pairs(running) do
      if not here[pod] then
        out[#out + 1] = pod
        out[#out + 1] = n
      end
    end
    running, left = here, still
    if left == 0 then break end
  end
  for pod, n in pairs(running) do
    out[#out + 1] = pod
    out[#out + 1] = n
  end
  return out
end

local function deja_prefix_sent(keys, args)
  local kv, problem = kv_of(keys, 'deja_prefix_sent')
  if not kv then return bad(problem) end
  local pod, alive_s, most = args[1], number(args[2] or '', 1, 86400), number(args[3] or '', 1, 2 ^ 31)
  if not is_pod(pod) then return bad('deja_prefix_sent: pod must be 1 to 64 letters, digits and - _ .') end
  if not alive_s or not most then return bad('deja_prefix_sent: expected pod alive_s blocks_max block ...') end
  if #args - 3 > BLOCKS_AT_ONCE then return bad('deja_prefix_sent: at most ' .. BLOCKS_AT_ONCE .. ' blocks') end
  for i = 4, #args do
    if not is_id(args[i]) then return bad('deja_prefix_sent: a block must be 32 hex digits') end
  end
  local run, now, own = run_of(kv, pod, alive_s), now_s(), kv .. 'o:' .. pod
  for i = 4, #args do
    redis.call('HSET', kv .. 'b:' .. args[i], pod, run)
    redis.call('EXPIRE', kv .. 'b:' .. args[i], BLOCK_TTL_S)
    redis.call('ZADD', own, now, args[i])
  end
  redis.call('EXPIRE', own, BLOCK_TTL_S)
  local over = redis.call('ZCARD', own) - most
  if over > 0 then
    local old = redis.call('ZPOPMIN', own, math.min(over, FORGOTTEN_AT_ONCE))
    for i = 1, #old, 2 do
      forget(kv, pod, old[i])
    end
  end
  return redis.call('ZCARD', own)
end

local function deja_prefix_alive(keys, args)
  local kv, problem = kv_of(keys, 'deja_prefix_alive')
  if not kv then return bad(problem) end
  local alive_s = number(args[1] or '', 1, 86400)
  if not alive_s then return bad('deja_prefix_alive: expected alive_s pod ...') end
  for i = 2, #args do
    if not is_pod(args[i]) then return bad('deja_prefix_alive: pod must be 1 to 64 letters, digits and - _ .') end
    run_of(kv, args[i], alive_s)
  end
  return redis.status_reply('OK')
end

local function deja_prefix_gone(keys, args)
  local kv, problem = kv_of(keys, 'deja_prefix_gone')
  if not kv then return bad(problem) end
  if not is_pod(args[1]) then return bad('deja_prefix_gone: pod must be 1 to 64 letters, digits and - _ .') end
  redis.call('DEL', kv .. 'p:' .. args[1])
  return redis.status_reply('OK')
end

local function deja_prefix_drop(keys, args)
  local kv, problem = kv_of(keys, 'deja_prefix_drop')
  if not kv then return bad(problem) end
  local max = number(args[2] or FORGOTTEN_AT_ONCE, 1, 100000)
  if not is_pod(args[1]) or not max then return bad('deja_prefix_drop: expected pod [max]') end
  local old = redis.call('ZPOPMIN', kv .. 'o:' .. args[1], max)
  for i = 1, #old, 2 do
    forget(kv, args[1], old[i])
  end
  return redis.call('ZCARD', kv .. 'o:' .. args[1])
end

redis.register_function({function_name = 'deja_prefix_held', callback = deja_prefix_held, flags = {'no-writes'}})
redis.register_function('deja_prefix_sent', deja_prefix_sent)
redis.register_function('deja_prefix_alive', deja_prefix_alive)
redis.register_function('deja_prefix_gone', deja_prefix_gone)
redis.register_function('deja_prefix_drop', deja_prefix_drop)

end
