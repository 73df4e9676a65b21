// Makes calls by the AWS SDK for JavaScript: reads a JSON object a line, and answers with one.
//
// The folder of a service model is the first argument. A command that the SDK does not have is made from it, in the
// form in which the SDK's own are generated; its rules of endpoints take the place of the SDK's.
"use strict";

const { readFileSync } = require("node:fs");
const { createInterface } = require("node:readline");
const sdk = require("@aws-sdk/client-kinesis");
const { awsEndpointFunctions } = require("@aws-sdk/core/client");
const { makeBuilder } = require("@smithy/core/client");
const { customEndpointFunctions, getEndpointPlugin, resolveEndpoint } = require("@smithy/core/endpoints");

const load = (name) => JSON.parse(readFileSync(`${process.argv[2]}/${name}`));
const model = load("service-2.json");
const rules = load("endpoint-rule-set-1.json");
customEndpointFunctions.aws = awsEndpointFunctions;

// Schemas, as in the SDK's schemas_0.js

const SPACE = "com.amazonaws.kinesis";
const SIMPLE = { string: 0, integer: 1, long: 1, boolean: 2, timestamp: 4, blob: 21 };
const schemas = {};

function schemaOf(name) {
  const shape = model.shapes[name];
  if (shape.type in SIMPLE) return SIMPLE[shape.type];
  if (name in schemas) return schemas[name];
  const later = (member) => () => schemaOf(member.shape);
  if (shape.type === "list") return (schemas[name] = [1, SPACE, name, 0, later(shape.member)]);
  if (shape.type === "map") return (schemas[name] = [2, SPACE, name, 0, later(shape.key), later(shape.value)]);
  const required = shape.required ?? [];
  const names = [...required, ...Object.keys(shape.members).filter((each) => !required.includes(each))];
  return (schemas[name] = [3, SPACE, name, 0, names, names.map((each) => later(shape.members[each])), required.length]);
}

const own = sdk.ListStreamsCommand.getEndpointParameterInstructions();
const common = Object.fromEntries(Object.entries(own).filter(([, each]) => each.type === "builtInParams"));
const build = makeBuilder(common, model.metadata.targetPrefix, "KinesisClient", getEndpointPlugin);

function made(name) {
  const { input, output, staticContextParams = {} } = model.operations[name];
  const added = {};
  for (const [key, { value }] of Object.entries(staticContextParams)) added[key] = { type: "staticContextParams", value };
  for (const [member, { contextParam }] of Object.entries(model.shapes[input.shape].members)) {
    if (contextParam) added[contextParam.name] = { type: "contextParams", name: member };
  }
  const schema = [9, SPACE, name, 0, () => schemaOf(input.shape), output ? () => schemaOf(output.shape) : "unit"];
  return build(added, () => [], name, schema);
}

const commands = {};
const commandOf = (name) => (commands[name] ??= sdk[`${name}Command`] ?? made(name));

// Calls

class Host extends Error {
  name = "Host";
}

// What a call without an endpoint would connect to, instead of connecting.
const hostOnly = {
  handle: async (request) => {
    throw new Host(request.hostname);
  },
};

const clients = {};
function clientOf({ endpoint, account, onlyHost }) {
  return (clients[[endpoint, account, onlyHost]] ??= new sdk.KinesisClient({
    region: "us-east-1",
    credentials: { accessKeyId: "test", secretAccessKey: "test", ...(account && { accountId: account }) },
    endpointProvider: (endpointParams) => resolveEndpoint(rules, { endpointParams }),
    ...(endpoint && { endpoint }),
    ...(onlyHost && { requestHandler: hostOnly }),
  }));
}

const given = (key, value) => {
  if (key === "Data") return Buffer.from(value, "base64");
  return key === "Timestamp" ? new Date(value * 1000) : value;
};
const told = (_, value) => {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  return value?.type === "Buffer" ? Buffer.from(value.data).toString("base64") : value;
};

async function answer(line) {
  const asked = JSON.parse(line, given);
  try {
    const { $metadata, ...output } = await clientOf(asked).send(new (commandOf(asked.operation))(asked.input));
    return { output };
  } catch (error) {
    return { error: error.name, message: error.message };
  }
}

async function main() {
  console.log(JSON.stringify({ has: Object.keys(model.operations).filter((each) => `${each}Command` in sdk) }));
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(line), told));
  }
}

main();
