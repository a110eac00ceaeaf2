-- entries_evict - keeps the entries of a namespace within the knob redis_bytes_max: what is worth least goes (lua/budget.lua), what people
-- wrote never. Storing an entry makes room for it; gateways sweep besides, as after the knob was lowered.
--
-- deja_evict KEYS {ns}  ARGV max
--     Looks at some namespaces: forgets what ran out there, and deletes at most max entries where they take more than they may. Reply: how many.
-- deja_used KEYS {ns}  ARGV [id times]...
--     These entries were served. Reply: how many of them are there.

do
  local SAMPLE, GLANCE = 20, 4 -- members; the second at each entry that is stored: then a quarter at most has run out
  local FIELDS_A_CALL = 64     -- of use, drawn at random: there may be as many namespaces as clients name

  -- Entries that ran out, or came again with another size, are still counted: some are looked at each time, as Redis itself does it.
  local function drop_expired(prefix, ns, n)
    local key, gone = prefix .. 'w:' .. ns, 0
    for _, member in ipairs(redis.call('ZRANDMEMBER', key, n)) do
      local id, bytes = string.match(member, '^(%x+):(%d+)$')
      if not id or redis.pcall('HGET', prefix .. 'e:' .. id, 'sz') ~= bytes then
        redis.call('ZREM', key, member)
        budget_count(prefix, 'b', ns, -(tonumber(bytes) or 0))
        gone = gone + 1
      end
    end
    return gone
  end

  local function bytes_of(prefix, ns)
    local v = redis.call('HMGET', prefix .. 'use', 'b:' .. ns, 'p:' .. ns)
    return (tonumber(v[1]) or 0) + (tonumber(v[2]) or 0)
  end

  budget_enforce = function(prefix, ns, max)
    drop_expired(prefix, ns, GLANCE) -- also where there is no budget: the list must not outgrow what is there
    local tag = string.match(prefix, '{([^{}]+)}')
    local budget = tonumber((config_effective('{' .. tag .. '}:config', 'ns:' .. ns, 'redis_bytes_max'))) or 0
    if budget == 0 then return 0 end
    local gone = 0
    while gone < max and bytes_of(prefix, ns) > budget do
      if drop_expired(prefix, ns, SAMPLE) * 4 < SAMPLE then
        local popped = redis.call('ZPOPMIN', prefix .. 'w:' .. ns)
        if #popped == 0 then break end
        local id, bytes = string.match(popped[1], '^(%x+):(%d+)$')
        redis.call('HSET', prefix .. 'use', 'c:' .. ns, popped[2])
        budget_count(prefix, 'b', ns, -(tonumber(bytes) or 0))
        local n, part = remove_entry(prefix, id or '')
        if n > 0 then tell(prefix, nil, 'op', 'del', 'id', id, 'part', part, 'src', '') end
      end
      gone = gone + 1
    end
    return gone
  end

  local function deja_evict(keys, args)
    local prefix, max = prefix_of(keys[1]), number(args[1] or '', 1, 10000)
    if #keys ~= 1 or not prefix then return bad('deja_evict needs 1 key that names the key space, as in {deja}') end
    if not max then return bad('deja_evict: max must be from 1 to 10000') end
    local gone = 0
    for _, field in ipairs(redis.call('HRANDFIELD', prefix .. 'use', FIELDS_A_CALL)) do
      local ns = string.match(field, '^b:(.*)$')
      if ns then
        drop_expired(prefix, ns, SAMPLE)
        gone = gone + budget_enforce(prefix, ns, max - gone)
      end
    end
    return gone
  end

  local function deja_used(keys, args)
    local prefix, there = prefix_of(keys[1]), 0
    if #keys ~= 1 or not prefix then return bad('deja_used needs 1 key that names the key space, as in {deja}') end
    if #args % 2 ~= 0 or #args > 1024 then return bad('deja_used needs pairs of id and times, at most 512') end
    for i = 1, #args, 2 do
      local key, times = prefix .. 'e:' .. args[i], number(args[i + 1], 1, 1000000)
      local v = is_id(args[i]) and times and redis.call('HMGET', key, 'ns', 'sz', 'ptok', 'ctok', 'lat', 'pin') or {}
      if v[2] and v[6] ~= '1' then
        local f = {ptok = v[3], ctok = v[4], lat = v[5]}
        local uses = 1 + redis.call('HINCRBY', key, 'uses', times)
        redis.call('ZADD', prefix .. 'w:' .. (v[1] or ''), 'XX', budget_rank(prefix, v[1] or '', uses, f, v[2]), args[i] .. ':' .. v[2])
        there = there + 1
      end
    end
    return there
  end

  redis.register_function('deja_evict', deja_evict)
  redis.register_function('deja_used', deja_used)
end
