package redlock

import "github.com/redlock-go/redlock/pool"

// The scripts that redlock runs on a node. Their IDs are constants, checked by a test
// against what SCRIPT LOAD says, because computing a SHA-1 at run time fails
// where only FIPS 140 algorithms are allowed.
//
// The first key is the lock's; the second, where there is one, its fence counter. That is shared
// with other names and lives for ever, or is the lock's own, in the same hash slot, and expires.
// Values are compared whole. Every script is safe to run twice.
var (
	// releaseScript deletes the key if it holds the value, and announces that.
	//
	//	KEYS: key   ARGV: value, channel ("" for no announcement)
	//
	// It returns 1 and more if it deleted the key: one more for each connection that heard of it. It returns
	// 0 if there was no key, and a negative number if the key is somebody else's: -1 if
	// that never expires, -2-ms if it expires in ms milliseconds.
	// The announcement is the value; it is made inside pcall, so that an ACL that
	// forbids the channel does not undo the deletion.
	releaseScript = &pool.Script{
		Name: "release",
		Source: `local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then
	redis.call('DEL', KEYS[1])
	if ARGV[2] == '' then return 1 end
	local heard = redis.pcall('PUBLISH', ARGV[2], ARGV[1])
	return type(heard) == 'number' and 1 + heard or 1
end
if not v then return 0 end
local ttl = redis.call('PTTL', KEYS[1])
if ttl < 0 then return -1 end
return -2 - ttl
`,
		ID: "faa92ee399837f07c38429d82f6f632a3fc12a2a",
	}

	// extendScript sets the key's expiry anew if the key holds the value. PEXPIRE
	// works on a node that is out of memory, where SET does not.
	//
	//	KEYS: key [fence]   ARGV: value, expiry ms [, fence expiry ms]
	//
	// A counter that lives for ever is not given.
	//
	// It returns 1 if it did, 0 if there was no key, -1 if the key is somebody else's.
	extendScript = &pool.Script{
		Name: "extend",
		Source: `local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	if KEYS[2] then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
	return 1
end
if v then return -1 end
return 0
`,
		ID: "160d3985734fdf7ccc8d90545439c82bb7d34606",
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
if v then return -1 end
return 0
`,
		ID: "09eb3665100d67f563189aad17299107cb9f3119",
	}

	// acquireScript is SET NX PX with a restart guard, a fencing token, or both.
	//
	//	KEYS: key [fence]   ARGV: value, expiry ms [, proposed token, fence expiry ms] [, guard seconds]
	//
	// A fence expiry of 0 stands for a counter that lives for ever.
	//
	// It returns a positive number if the key holds the value now: the fence counter, or 1 without
	// fencing. It returns 0 if the key is somebody else's, and -s if the guard
	// refuses for another s seconds. Nothing is written before the counter has been found good. A node that refuses
	// writes, or where the counter is of another type, says that first.
	//
	// Numbers are doubles in Lua and exact up to 2^53; they are written with %.0f because
	// tostring rounds to 14 digits. Of a counter with 16 characters, which is what microseconds since 1970 have until
	// 2286, tonumber is enough to know: from 10^15 on they are digits, but for a hexadecimal number
	// or one with an exponent. To look for anything but digits costs as much again as the rest of the check.
	acquireScript = &pool.Script{
		Name: "acquire",
		Source: `local call, key, fence = redis.call, KEYS[1], KEYS[2]
local guard = ARGV[fence and 5 or 3]
if guard and not call('GET', key) then
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
if fault or not call('SET', key, ARGV[1], 'PX', ARGV[2], 'NX') then
	local held = call('GET', key)
	if held and held ~= ARGV[1] then return 0 end
	if held and last then return last end
	if fault then return redis.error_reply('ERR redlock: the fence counter ' .. fence .. ' ' .. fault) end
	if not held then return 0 end
end
if fence then
	if ARGV[4] == '0' then call('SET', fence, token) else call('SET', fence, token, 'PX', ARGV[4]) end
end
return c
`,
		ID: "f375b79093e094f8ed6270e484c9c6b4219f8b44",
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
