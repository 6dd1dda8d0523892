package redlock

import "github.com/redlock-go/redlock/pool"

// luaHears is the part of scripts that tells the first in a queue that its turn has come. It is
// true if the member listens: a server of a cluster counts its own subscribers only.
const luaHears = `local function hears(to)
	local n = to and pcall('PUBLISH', string.sub(to, 1, 39), string.sub(to, 40))
	if n ~= 0 then return type(n) == 'number' end
	local cluster = pcall('INFO', 'cluster')
	return type(cluster) == 'string' and string.find(cluster, 'cluster_enabled:1', 1, true)
end
`

// The scripts that redlock runs on a node. Their IDs are constants, checked by a test
// against what SCRIPT LOAD says, because computing a SHA-1 at run time fails
// where only FIPS 140 algorithms are allowed.
//
// The first key is the lock's; the second, where there is one, its fence counter. That is shared
// with other names and lives for ever, or is the lock's own, in the same hash slot, and expires.
// Values are compared whole. Every script is safe to run twice.
var (
	// releaseScript deletes the key if it holds the value. Where others queue, it hands the key on
	// instead: it reserves the key for the first of them that hears of it.
	//
	//	KEYS: key [queue]   ARGV: value [, window ms [, member [, ticket, keep ms]]]
	//
	// It returns 1 if it deleted the key and 2 if it handed it on. It returns 0 if there was no
	// key, and a negative number if the key is somebody else's: -1 if that never expires, -2-ms
	// if it expires in ms milliseconds. A key that is reserved for the member is handed on in the
	// same way; the reply is 0 then. The member leaves the queue. With a ticket it takes its
	// place again instead, before the key is handed on.
	//
	// A member is a channel of 39 bytes and a number, which is what it hears there. A reservation
	// is "~" and the member, and lasts for the window. A member without a listener is dead, and
	// passed over; but a server of a cluster counts its own clients only, and passes nobody over.
	// A user who may not touch the queue deletes the key.
	releaseScript = &pool.Script{
		Name: "release",
		Source: `local call, pcall, key, queue, member = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[3]
` + luaHears + `local v = call('GET', key)
local mine = v == ARGV[1]
if mine or member and v == '~' .. member then
	if ARGV[4] then
		call('ZADD', queue, ARGV[4], member)
		call('PEXPIRE', queue, ARGV[5])
	end
	local first
	while queue do
		local to = pcall('ZPOPMIN', queue)[1]
		if not to then break end
		if to ~= member or ARGV[4] then
			first = first or to
			if to == member or hears(to) then
				first = to
				break
			end
		end
	end
	if first then
		call('SET', key, '~' .. first, 'PX', ARGV[2])
		return mine and 2 or 0
	end
	call('DEL', key)
	return mine and 1 or 0
end
if member and not ARGV[4] then pcall('ZREM', queue, member) end
if not v then return 0 end
local ttl = call('PTTL', key)
if ttl < 0 then return -1 end
return -2 - ttl
`,
		ID: "42b3fe3ed2245ffc8d1f7b7eb325de3fe0759f72",
	}

	// standScript stands in the queue. It grants nothing: a key that is free, that holds the
	// value, or that is reserved for the member, is reserved for the first in the queue that
	// hears of it.
	//
	//	KEYS: key, queue, last, roll
	//	ARGV: window ms, member, ticket, final (0 or 1), keep ms, grace seconds [, value]
	//
	// It returns the ticket that the member has now; how many are before the member, or -1 if the
	// key is reserved for it; and the milliseconds until the key expires if none is, or -1. A
	// ticket that is not final becomes greater than any that the node has heard of. The greatest
	// is kept under last, because those whose turn it is are not in the queue, and may come back.
	// What was reserved for the member goes to the first in the queue even if that does not
	// listen: it may be deaf on this node only, and the two would keep each other from a quorum
	// for ever. The value is that of an attempt of the member's that this node has refused. A
	// client that sends commands twice may have been granted it nevertheless.
	//
	// A key that nobody has released calls the roll: somebody is dead, and may not be the only
	// one. Those who do not stand again within the grace leave the queue when that happens next.
	// Until then they are kept under roll.
	standScript = &pool.Script{
		Name: "stand",
		Source: `local call, pcall, key, queue, member = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[2]
` + luaHears + `local ticket, v, reserved, roll = tonumber(ARGV[3]), call('GET', key), '~' .. member, KEYS[4]
if v == reserved and ARGV[4] == '0' then return {ticket, -1, -1} end
local last = tonumber(call('GET', KEYS[3]) or 0) or 0
if ARGV[4] == '0' then ticket = math.max(ticket, last + 1) end
local text = string.format('%.0f', ticket)
if ticket > last then call('SET', KEYS[3], text, 'PX', ARGV[5]) else call('PEXPIRE', KEYS[3], ARGV[5]) end
call('ZADD', queue, text, member)
call('PEXPIRE', queue, ARGV[5])
call('ZREM', roll, member)
if not v then
	local now = tonumber(call('TIME')[1])
	for _, dead in ipairs(call('ZRANGEBYSCORE', roll, '-inf', now)) do
		call('ZREM', queue, dead)
		call('ZREM', roll, dead)
	end
	for _, other in ipairs(call('ZRANGEBYSCORE', queue, '-inf', '+inf')) do
		if other ~= member then call('ZADD', roll, 'NX', now + ARGV[6], other) end
	end
	call('PEXPIRE', roll, ARGV[5])
end
if not v or v == reserved or v == ARGV[7] then
	local first
	while true do
		local to = call('ZPOPMIN', queue)[1]
		first = first or to
		if not to or v == reserved or to == member or hears(to) then
			first = to or first
			break
		end
	end
	call('SET', key, '~' .. first, 'PX', ARGV[1])
	if first == member then return {ticket, -1, -1} end
end
local rank = call('ZRANK', queue, member) or 0
return {ticket, rank, rank == 0 and call('PTTL', key) or -1}
`,
		ID: "bf7dbae928140801a398d364b36f706cd7b1f241",
	}

	// claimScript is acquireScript for one whose turn it may be. The last argument is one more, its
	// member: a key that is reserved for that is free.
	claimScript = &pool.Script{
		Name: "claim",
		Source: `ARGV.free = redis.call('GET', KEYS[1]) == '~' .. table.remove(ARGV)
` + acquireScript.Source,
		ID: "67006ccecee9c6c14524472d80b672f41d7b5658",
	}

	// healScript is acquireScript for a holder: a key that is reserved for anybody is free.
	healScript = &pool.Script{
		Name: "heal",
		Source: `ARGV.free = string.sub(redis.call('GET', KEYS[1]) or '', 1, 14) == '~redlock:turn:'
` + acquireScript.Source,
		ID: "63f69f644cccc69e2fcc74b10b8833606e5f0176",
	}

	// extendScript sets the key's expiry anew if the key holds the value. PEXPIRE
	// works on a node that is out of memory, where SET does not.
	//
	//	KEYS: key [fence]   ARGV: value, expiry ms [, fence expiry ms]
	//
	// A counter that lives for ever is not given.
	//
	// It returns 1 if it did, 0 if there was no key or it is only reserved, -1 if the key is
	// somebody else's.
	extendScript = &pool.Script{
		Name: "extend",
		Source: `local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	if KEYS[2] then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
	return 1
end
if v and string.sub(v, 1, 14) ~= '~redlock:turn:' then return -1 end
return 0
`,
		ID: "daf113a3db8dbea70a15a603ec328d85b32fc323",
	}

	// validScript asks whether the key holds the value.
	//
	//	KEYS: key   ARGV: value
	//
	// It returns 1 if it does, 0 if there is no key, -1 if the key is somebody else's.
	validScript = &pool.Script{
		Name: "valid",
		Source: `local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then return 1 end
if v and string.sub(v, 1, 14) ~= '~redlock:turn:' then return -1 end
return 0
`,
		ID: "a3e820af55e6aec3b0cf830031f93c7df444b1fa",
	}

	// acquireScript is SET NX PX with a restart guard, a fencing token, or both.
	//
	//	KEYS: key [fence]
	//	ARGV: value, expiry ms [, proposed token, fence expiry ms] [, guard seconds]
	//
	// A fence expiry of 0 stands for a counter that lives for ever. Scripts that begin with
	// another line set ARGV.free if the key may be overwritten.
	//
	// It returns a positive number if the key holds the value now: the fence counter, or 1
	// without fencing. It returns 0 if the key is somebody else's, and -s if the guard refuses
	// for another s seconds. Nothing is written before the counter has been found good. A node
	// that refuses writes, or where the counter is of another type, says that first.
	//
	// Numbers are doubles in Lua and exact up to 2^53; they are written with %.0f because
	// tostring rounds to 14 digits. Of a counter with 16 characters, which is what microseconds
	// since 1970 have until 2286, tonumber is enough to know: from 10^15 on they are digits, but
	// for a hexadecimal number or one with an exponent. To look for anything but digits costs as
	// much again as the rest of the check.
	acquireScript = &pool.Script{
		Name: "acquire",
		Source: `local call, key, fence = redis.call, KEYS[1], KEYS[2]
local guard = ARGV[fence and 5 or 3]
if guard and (ARGV.free or not call('GET', key)) then
	local up = tonumber(string.match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)') or '')
	if not up then return redis.error_reply('ERR redlock: INFO server does not tell uptime_in_seconds') end
	if up < tonumber(guard) then return up - tonumber(guard) end
end
local c, token, last, fault = 1, ARGV[3]
if fence then
	c = tonumber(token)
	local v = call('GET', fence)
	if v then
		last = tonumber(v)
		if not (last and last <= 9007199254740991) or (#v ~= 16 or last < 1e15) and (#v > 16 or string.find(v, '%D')) then
			last, fault = nil, 'holds something else'
		elseif last >= c then
			c = last + 1
			token = string.format('%.0f', c)
		end
	end
	if c > 9007199254740991 then fault = fault or 'is at its end' end
end
if fault or not call('SET', key, ARGV[1], 'PX', ARGV[2], ARGV.free and 'XX' or 'NX') then
	local held = call('GET', key)
	if held and held ~= ARGV[1] and not ARGV.free then return 0 end
	if held == ARGV[1] and last then return last end
	if fault then return redis.error_reply('ERR redlock: the fence counter ' .. fence .. ' ' .. fault) end
	if not held then return 0 end
end
if fence then
	if ARGV[4] == '0' then call('SET', fence, token) else call('SET', fence, token, 'PX', ARGV[4]) end
end
return c
`,
		ID: "e4fa6b01ad587c98bf69156c08220784fbba1769",
	}

	// raiseScript lifts the fence counter to the token if the key holds the value.
	//
	//	KEYS: key, fence   ARGV: value, token, fence expiry ms, 0 for ever
	//
	// It returns 1 if the counter is at least the token now, 0 if there was no key, -1 if the
	// key is somebody else's.
	raiseScript = &pool.Script{
		Name: "raise",
		Source: `local v = redis.call('GET', KEYS[1])
if not v then return 0 end
if v ~= ARGV[1] then return -1 end
local c = redis.call('GET', KEYS[2])
if c and (not string.match(c, '^%d+$') or #c > 16 or tonumber(c) > 9007199254740991) then
	return redis.error_reply('ERR redlock: the fence counter ' .. KEYS[2] .. ' holds something else')
end
if not c or tonumber(c) < tonumber(ARGV[2]) then
	if ARGV[3] == '0' then
		redis.call('SET', KEYS[2], ARGV[2])
	else
		redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
	end
end
return 1
`,
		ID: "be164273a8bac5e4d7ff20166be54e448084e2c4",
	}

	// inspectScript reads the key, whoever's it is, and its fence counter.
	//
	//	KEYS: key [fence]
	//
	// It returns the value, the milliseconds until it expires, -1 for never, and the counter, ""
	// if there is none; nothing if there was no key.
	inspectScript = &pool.Script{
		Name: "inspect",
		Source: `local v = redis.call('GET', KEYS[1])
if not v then return {} end
local ttl = redis.call('PTTL', KEYS[1])
if KEYS[2] then return {v, ttl, redis.call('GET', KEYS[2]) or ''} end
return {v, ttl}
`,
		ID: "ca962219576ee176cbc60d6539ee4c2a0219eaf7",
	}
)
